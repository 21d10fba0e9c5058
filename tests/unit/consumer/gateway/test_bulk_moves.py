"""Moves of many, with a database that is given."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from consumer.admin.cancelling import Cancelled, Withdraw
from consumer.admin.journal import JournalUnreachable
from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import Ending
from consumer.config.settings import Settings
from consumer.gateway import bulk_moves, ended_runs, running_ends
from consumer.gateway.bulk_moves import JournalBulkMover
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import AT_ONCE, By
from tests.support.cancelling import redis_goes


class FakeThreads:
    """Gives these answers, one after the other; raises those that are errors."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.busy = 0

    async def run(self, work: Any, timeout: float, *, again: bool = False) -> Any:
        self.busy += 1
        try:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            self.busy -= 1


IDS = [f"r{n}" for n in range(3 * AT_ONCE)]


def test_what_was_moved_before_it_broke_off_is_told() -> None:
    rows = [{"id": one} for one in IDS[:AT_ONCE]]
    threads = FakeThreads((rows, []), JournalUnreachable("away"))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    outcome = asyncio.run(mover.move("drop", IDS, By("ann")))
    assert outcome.rows == rows
    assert "away" in outcome.problem
    assert (outcome.unsure, outcome.untried) == (IDS[AT_ONCE : 2 * AT_ONCE], IDS[2 * AT_ONCE :])


def test_it_breaks_off_while_those_that_run_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(settings: Settings, refused: Any, withdraw: Withdraw, *_: Any, **__: Any) -> Cancelled:
        return Cancelled(withdraw([one.id for one in refused]))

    monkeypatch.setattr(bulk_moves, "end_running", end)
    refused = [Refusal("r1", "running", "is running right now")]
    threads = FakeThreads(([{"id": "r0"}], refused), JournalUnreachable("away"))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    outcome = asyncio.run(mover.move("cancel", ["r0", "r1"], By("ann"), Ending(1)))
    assert (outcome.rows, outcome.refused) == ([{"id": "r0"}], [])
    assert (outcome.problem, outcome.unsure) == ("away", ["r1"])


def test_of_what_ended_before_it_broke_off_more_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(settings: Settings, refused: Any, withdraw: Withdraw, *_: Any, **__: Any) -> Cancelled:
        assert withdraw([one.id for one in refused]) == [{"id": "r1"}]
        return Cancelled(withdraw(["r2"]))

    monkeypatch.setattr(bulk_moves, "end_running", end)
    done = Refusal("r0", "done", "is done")
    refused = [done, *(Refusal(one, "running", "is running right now") for one in ("r1", "r2"))]
    threads = FakeThreads(([], refused), ([{"id": "r1"}], []), JournalUnreachable("away"))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    outcome = asyncio.run(mover.move("cancel", ["r0", "r1", "r2"], By("ann"), Ending(1)))
    assert (outcome.rows, outcome.refused) == ([{"id": "r1"}], [done])
    assert (outcome.problem, outcome.unsure) == ("away", ["r2"])


def test_who_ended_what_ran_is_kept_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"id": "r1", "from_state": "running", "state": "cancelled", "run": 2},
        {"id": "r2", "from_state": "waiting", "state": "cancelled", "run": 3},
    ]
    monkeypatch.setattr(bulk_moves, "end_running", lambda *_, **__: Cancelled(rows))
    noted: list[Any] = []
    monkeypatch.setattr(ended_runs, "note_ended_runs", lambda *given, **_: noted.append(given[1:]))

    class Threads(FakeThreads):
        async def run(self, work: Any, timeout: float, *, again: bool = False) -> Any:
            if not self.answers:
                return work(None)
            return await super().run(work, timeout, again=again)

    def cancel(*answers: Any) -> MoveOutcome:
        refused = [Refusal(one, "running", "is running right now") for one in ("r1", "r2")]
        threads = Threads(([], refused), *answers)
        mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
        return asyncio.run(mover.move("cancel", ["r1", "r2"], By("ann"), Ending(5)))

    assert cancel().rows == rows
    assert noted == [(rows[:1], By("ann"))]
    away = cancel(JournalUnreachable("away"))
    assert (away.rows, away.problem) == (rows, ""), "they have ended all the same"


def test_redis_goes_after_some_were_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    redis_goes(monkeypatch, "r1", "r2")
    refused = [Refusal(one, "running", "is running right now") for one in ("r1", "r2", "r3")]
    threads = FakeThreads(([], refused), ([{"id": "r1"}], refused[1:2]))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    outcome = asyncio.run(mover.move("cancel", ["r1", "r2", "r3"], By("ann"), Ending(5)))
    assert (outcome.rows, outcome.refused) == ([{"id": "r1"}], refused[2:])
    assert [one.id for one in outcome.late] == ["r2"], "it may have been asked to end"
    assert (outcome.problem, outcome.unsure) == ("", [])


def test_who_waits_for_those_that_run_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, go_on = threading.Event(), threading.Event()

    def end(settings: Settings, refused: Any, withdraw: Withdraw, *_: Any, **__: Any) -> Cancelled:
        rows = withdraw([one.id for one in refused])
        waits.set()
        assert go_on.wait(60)
        return Cancelled(rows, late=[Refusal("r2", "running", "has not ended")])

    monkeypatch.setattr(bulk_moves, "end_running", end)
    refused = [Refusal(one, "running", "is running right now") for one in ("r1", "r2")]
    threads = FakeThreads(([], refused), ([{"id": "r1"}], []), ([{"id": "r9"}], []))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]

    async def scenario() -> MoveOutcome:
        cancel = mover.move("cancel", ["r1", "r2"], By("ann"), Ending(60))
        cancelling = asyncio.create_task(cancel)
        await asyncio.to_thread(waits.wait, 60)
        assert threads.busy == 0
        assert (await mover.move("drop", ["r9"], By("bob"))).rows == [{"id": "r9"}]
        go_on.set()
        return await cancelling

    outcome = asyncio.run(scenario())
    assert (outcome.rows, outcome.refused, outcome.problem) == ([{"id": "r1"}], [], "")
    assert [one.id for one in outcome.late] == ["r2"]


def test_who_has_tried_nothing_raises() -> None:
    threads = FakeThreads(JournalUnreachable("away"))
    mover = JournalBulkMover(Settings(), threads)  # type: ignore[arg-type]
    with pytest.raises(JournalUnreachable):
        asyncio.run(mover.move("retry", IDS, By("ann")))


def test_a_journal_that_takes_too_long_while_one_waits_is_named_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_ends, "MOVE_WITHIN", 0.0)
    monkeypatch.setattr(running_ends, "_MARGIN", 0.02)

    async def hangs(_: Any) -> list[Any]:
        await asyncio.Event().wait()
        return []

    def end(withdraw: Withdraw) -> str:
        with pytest.raises(JournalUnreachable, match=r"no answer within 0\.02 s") as caught:
            withdraw(["r"])
        return str(caught.value)

    assert asyncio.run(running_ends.RunningEnds().end(end, hangs, 60))
