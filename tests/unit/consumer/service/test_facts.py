"""What an instance says of itself."""

from __future__ import annotations

from consumer.intake.stats import LoopStats
from consumer.service.facts import NAMED, facts
from tests.support.fake_pool import FakeSupervisor


def test_of_many_partitions_without_a_start_some_are_named() -> None:
    places = tuple(("orders", n) for n in range(NAMED + 3))
    loop = LoopStats(
        assigned=1, held=0, paused=(), joined=True, missing_topics=(), without_start=places,
        counts={}, lost={},
    )  # fmt: skip
    told = facts(loop, FakeSupervisor())
    assert told["partitions_without_start"] == NAMED + 3
    assert told["without_start"] == [f"orders/{n}" for n in range(NAMED)]
