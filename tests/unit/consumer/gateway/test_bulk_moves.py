"""Moves of many, with a database that is given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer.admin.journal import JournalUnreachable
from consumer.config.settings import Settings
from consumer.gateway.bulk_moves import Ending, JournalBulkMover
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import AT_ONCE, By


class FakeThreads:
    """Gives these answers, one after the other; raises those that are errors."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def run(self, work: Any, timeout: float, *, again: bool = False) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


IDS = [f"r{n}" for n in range(3 * AT_ONCE)]


def test_what_was_moved_before_it_broke_off_is_told() -> None:
    rows = [{"id": one} for one in IDS[:AT_ONCE]]
    threads = FakeThreads((rows, []), JournalUnreachable("away"))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    outcome = asyncio.run(mover.move("drop", IDS, By("ann")))
    assert outcome.rows == rows
    assert "away" in outcome.problem
    assert (outcome.unsure, outcome.untried) == (IDS[AT_ONCE : 2 * AT_ONCE], IDS[2 * AT_ONCE :])


def test_it_breaks_off_while_those_that_run_are_ended() -> None:
    refused = [Refusal("r1", "running", "is running right now")]
    threads = FakeThreads(([{"id": "r0"}], refused), JournalUnreachable("away"))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    outcome = asyncio.run(mover.move("cancel", ["r0", "r1"], By("ann"), Ending(1)))
    assert (outcome.rows, outcome.refused) == ([{"id": "r0"}], [])
    assert (outcome.problem, outcome.unsure) == ("away", ["r1"])


def test_who_has_tried_nothing_raises() -> None:
    threads = FakeThreads(JournalUnreachable("away"))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    with pytest.raises(JournalUnreachable):
        asyncio.run(mover.move("retry", IDS, By("ann")))
