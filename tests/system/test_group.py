"""A group of three instances whose members come, go and die under load."""

from __future__ import annotations

import pytest

from tests.support.service import Bench, Callers, runs
from tests.support.waiting import eventually

PARTITIONS = 6


@pytest.mark.long
def test_members_join_leave_and_die_under_load(bench: Bench) -> None:
    """With producers that poll; test_read_again has joins, leaves and kills with every protocol."""
    settings = {"ONCEPOOL_KAFKA_PROTOCOL": "consumer", "ONCEPOOL_WORKERS": "1"}
    first = bench.start(**settings)
    callers = Callers(bench, threads=16)
    callers.answered(30)

    second, third = (bench.start(wait=False, **settings) for _ in range(2))
    for joining in (second, third):
        joining.running()
    bench.shared_out(3, PARTITIONS)
    callers.answered(100)

    assert first.stop() == 0
    bench.shared_out(2, PARTITIONS)
    callers.answered(50)

    orphans = second.children()
    assert len(orphans) == 2
    second.kill()
    fourth = bench.start(**settings)
    callers.answered(200)
    eventually(lambda: not any(map(runs, orphans)))

    bench.check_books(callers.end())
    assert bench.states().keys() == {"done"}
    assert {third.stop(), fourth.stop()} == {0}


@pytest.mark.long
def test_a_member_with_another_assignor_says_why_it_cannot_join(bench: Bench) -> None:
    """It joins once the others have gone."""
    settings = {"ONCEPOOL_KAFKA_PROTOCOL": "classic", "ONCEPOOL_WORKERS": "1"}
    first = bench.start(**settings, ONCEPOOL_KAFKA_ASSIGNOR="range")
    bench.shared_out(1, PARTITIONS)
    other = bench.start(wait=False, **settings, ONCEPOOL_KAFKA_ASSIGNOR="cooperative-sticky")
    eventually(lambda: "need the same kafka_assignor" in other.log)
    assert first.stop() == 0
    bench.shared_out(1, PARTITIONS)
    assert other.stop() == 0
