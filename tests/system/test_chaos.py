"""A small run of the chaos suite: faults of every family, and the oracle outside the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.real.campaign import episode
from tests.chaos.real.episode import EpisodePlan
from tests.chaos.real.place import Place

KINDS = (
    *("worker_killed_in_handler", "worker_killed_before_commit", "worker_killed_after_commit"),
    *("worker_killed_before_report", "worker_segfault", "main_killed", "maintenance_killed"),
    *("commit_reply_lost", "kafka_connections_cut", "database_backend_ended_busy"),
    *("database_commit_reply_lost", "database_unreachable", "database_read_only"),
    *("redis_flushed", "redis_killed"),
    *("relay_killed", "producer_killed", "gateway_killed"),
)


@pytest.mark.timeout(400)
def test_nothing_is_lost_or_done_twice_under_faults(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    plan = EpisodePlan(
        name="chaos_test", protocol="consumer", ordering="key", seed=11, seconds=14.0, instances=2,
        rate=45.0, calm=0.3, kinds=KINDS, partitions=4, orders=15.0, gateway=0.2,
    )  # fmt: skip
    with Place(1, tmp_path) as place:
        outcome = episode(place, plan)
    assert outcome.wrong == {}
    assert len({struck.kind for struck in outcome.facts.struck if struck.evidence}) >= 8
    assert len(outcome.facts.ledger.items) > 100
    orders = outcome.facts.orders
    assert orders is not None
    assert orders.begun > len(orders.committed) > 50
    gateway = outcome.facts.gateway
    assert gateway is not None
    assert len(gateway.ids) > 20
