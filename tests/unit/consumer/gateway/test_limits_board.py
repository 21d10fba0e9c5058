"""Who changed a limit is kept in the journal, as far as that answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer.admin.journal import JournalUnreachable
from consumer.admin.limits import noted
from consumer.config.settings import Settings
from consumer.gateway.limits_board import LimitsSeen, RedisLimitsBoard
from feedback.operations.operator_changes import OperatorChange
from feedback.operations.request_actions import By
from processing.cluster.limits import Changes, Setting

PAUSE: Changes = {Setting("paused", "a.b"): 1}


class FakeJournal:
    """A connection, and the thread that has it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.values: list[dict[str, Any]] = []

    async def run(self, work: Any, timeout: float, *, again: bool = False) -> Any:
        assert not again, "it would be kept twice"
        if self.error is not None:
            raise self.error
        return work(self)

    def execute(self, _: str, values: dict[str, Any]) -> None:
        self.values.append(values)


class Board(RedisLimitsBoard):
    """Without Redis."""

    def _change(self, changes: Changes) -> None: ...

    def _look(self, changes: Changes | None = None) -> LimitsSeen:
        return LimitsSeen({}, [], ("applied",))


def changed(journal: FakeJournal) -> LimitsSeen:
    board = Board(Settings(), journal)  # type: ignore[arg-type]
    return asyncio.run(board.change(PAUSE, By("ann", "provider away")))


def test_who_changed_a_limit_and_why_is_kept() -> None:
    journal = FakeJournal()
    assert changed(journal).said == ("applied",)
    [values] = journal.values
    assert (values["who"], values["why"]) == ("ann", "provider away")
    assert (values["whats"], values["names"], values["actions"]) == (["limits"], ["a.b"], ["pause"])


def test_a_limit_holds_while_the_journal_is_away_and_it_is_said_that_nobody_kept_who() -> None:
    applied, said = changed(FakeJournal(JournalUnreachable("away"))).said
    assert applied == "applied"
    assert "not in the audit: away" in said


@pytest.mark.parametrize(
    "changes,kept",
    [
        (PAUSE, [("a.b", "a.b", "pause", None)]),
        ({Setting("paused", "a.b"): None}, [("a.b", "a.b", "resume", None)]),
        (
            {Setting("total", "a.b"): 5, Setting("instance", "a.b"): None, Setting("workers"): 2},
            [
                ("a.b", "a.b", "set", "total 5, instance none"),
                ("workers", None, "set", "workers 2"),
            ],
        ),
    ],
)
def test_each_type_has_its_own_line(changes: Changes, kept: list[tuple[str, ...]]) -> None:
    assert noted(changes) == [OperatorChange("limits", *one) for one in kept]
