"""A small run of the chaos suite: faults of every family, and the oracle outside the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.real.campaign import episode
from tests.chaos.real.episode import EpisodePlan
from tests.chaos.real.place import Place

KINDS = (
    *("worker_killed", "worker_killed_before_lookup", "worker_killed_in_handler"),
    *("worker_killed_before_commit", "worker_killed_after_commit", "worker_killed_before_report"),
    *("worker_segfault", "worker_stopped", "worker_holds_the_gil", "maintenance_killed"),
    *("main_killed", "main_stopped_gently", "partitions_added", "descriptors_exhausted"),
    *("commit_reply_lost", "kafka_connections_cut", "kafka_unreachable", "clocks_jump"),
    *("database_backend_ended_idle", "database_backend_ended_busy", "database_commit_reply_lost"),
    *("database_unreachable", "database_read_only", "database_deadlocks", "database_crashed"),
    *("database_idle_sessions_ended", "database_idle_session_timeout", "database_locks_held"),
    *("redis_flushed", "redis_killed", "redis_paused", "redis_memory_full"),
    *("relay_killed", "relay_frozen", "producer_killed"),
    *("gateway_killed", "gateway_stopped_gently", "gateway_connections_cut"),
)
EPISODES = (("consumer", "key"), ("cooperative-sticky", "partition"))


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_done_twice_under_faults(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    plans = [
        EpisodePlan(
            name=f"chaos_test_{number}", protocol=protocol, ordering=ordering, seed=11 + number,
            seconds=25.0, instances=2, rate=45.0, calm=0.3, kinds=KINDS, partitions=4, orders=15.0,
            gateway=0.2, share=(number, len(EPISODES)),
        )
        for number, (protocol, ordering) in enumerate(EPISODES)
    ]  # fmt: skip
    with Place(1, tmp_path) as place:
        outcomes = [episode(place, plan) for plan in plans]
    assert [outcome.wrong for outcome in outcomes] == [{}, {}]
    struck = [one for outcome in outcomes for one in outcome.facts.struck]
    assert len({one.kind for one in struck if one.evidence}) >= 16
    for outcome in outcomes:
        assert outcome.operator_retries > 0
        assert len(outcome.facts.ledger.items) > 100
        orders, gateway = outcome.facts.orders, outcome.facts.gateway
        assert orders is not None
        assert orders.begun > len(orders.committed) > 50
        assert len(orders.spots) > 20
        assert gateway is not None
        assert len(gateway.ids) > 20
