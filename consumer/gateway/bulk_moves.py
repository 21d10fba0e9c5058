"""Operators' moves of many requests and dead letters at once, statement by statement."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Literal, Protocol

from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import (
    Ending,
    Transition,
    as_row,
    end_running,
    explain_those_known,
    wants_results,
)
from consumer.config.settings import Settings
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.ended_runs import note_ends
from consumer.gateway.running_ends import MOVE_WITHIN, RunningEnds, Stopped, never
from consumer.gateway.status_news import StatusNews
from feedback.client.event_loop import in_thread
from feedback.contract.states import State
from feedback.errors import OncepoolError
from feedback.journal.connections import Connection
from feedback.operations import request_actions as actions
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import AT_ONCE, RETRYABLE, By, Runs
from feedback.operations.request_reads import Row
from processing.logs import get_logger

BulkAction = Literal["retry", "cancel", "drop", "done", "failed", "again"]
"""The last three settle requests in doubt."""
MOVES_FROM: Final[dict[BulkAction, tuple[State, ...]]] = {
    "retry": RETRYABLE,
    "cancel": (State.WAITING,),
    "drop": (State.DEAD,),
    "done": (State.IN_DOUBT,),
    "failed": (State.IN_DOUBT,),
    "again": (State.IN_DOUBT,),
}
"""Action -> the states that it moves requests from."""

log = get_logger("oncepool.gateway")


class BulkMover(Protocol):
    """Moves many. Raises OncepoolError where nothing was tried yet."""

    async def move(
        self,
        action: BulkAction,
        ids: Sequence[str],
        by: By,
        ending: Ending | None = None,
        *,
        runs: Runs | None = None,
        result: bytes | None = None,
    ) -> MoveOutcome:
        """Moves all of them that may be moved; with `ending` also those that run, on `cancel`.

        With `runs` each only in its run. `result` is what was done: JSON. Raises ResultRefused.
        """


class JournalBulkMover:
    """On the journal, with the statuses of what is moved."""

    def __init__(
        self, settings: Settings, threads: DatabaseThreads, stopped: Stopped = never
    ) -> None:
        """`stopped` returns when all waits end."""
        self._settings = settings
        self._threads = threads
        self._ends = RunningEnds(stopped)
        self._news = StatusNews(settings)

    async def move(
        self,
        action: BulkAction,
        ids: Sequence[str],
        by: By,
        ending: Ending | None = None,
        *,
        runs: Runs | None = None,
        result: bytes | None = None,
    ) -> MoveOutcome:
        """As BulkMover has it."""
        outcome = MoveOutcome()
        schema = self._settings.database_schema
        move = self._moves(action, by, runs, result)
        wanted = list(dict.fromkeys(ids))
        if action == "retry":
            order = partial(actions.in_retry_order, ids=wanted, schema=schema)
            wanted = list(await self._threads.run(order, MOVE_WITHIN, again=True))
        outcome.plan(wanted)
        for start in range(0, len(wanted), AT_ONCE):
            part = wanted[start : start + AT_ONCE]
            outcome.begin(part, whole=True)
            try:
                outcome.done(*await self._moved(move, part))
            except OncepoolError as error:
                outcome.broke_off(error)
                break
        if ending is not None and action == "cancel" and outcome.refused and not outcome.problem:
            await self._end_running(outcome, move, by, ending)
        if any(one.state is None for one in outcome.refused):
            outcome.refused = await in_thread(explain_those_known, self._settings, outcome.refused)
        log.info("requests moved", action=action, who=by.who, why=by.why, problem=outcome.problem,
                 moved=len(outcome.rows), refused=len(outcome.refused),
                 unsure=len(outcome.unsure), untried=len(outcome.untried))  # fmt: skip
        return outcome

    async def _end_running(
        self, outcome: MoveOutcome, move: Transition, by: By, ending: Ending
    ) -> None:
        """Those of the refused that run come to an end."""

        async def withdraw(ids: Sequence[str]) -> list[Row]:
            rows, _ = await self._moved(move, ids)
            outcome.withdrew(rows)
            return rows

        asked = outcome.end_those_that_run()
        try:
            outcome.ended(
                await self._ends.end(
                    lambda withdraw: end_running(self._settings, asked, withdraw, ending, by),
                    withdraw,
                    ending.wait,
                )
            )
        except OncepoolError as error:
            outcome.broke_off(error)
        await note_ends(self._threads, outcome.rows, by, self._settings.database_schema)

    def _moves(
        self, action: BulkAction, by: By, runs: Runs | None, result: bytes | None
    ) -> Transition:
        schema = self._settings.database_schema
        results = wants_results(self._settings)
        if action == "retry":
            return partial(actions.retry, by=by, runs=runs, schema=schema)
        if action == "cancel":
            return partial(actions.cancel, by=by, schema=schema, results=results)
        if action == "drop":
            return partial(actions.drop, by=by, runs=runs, schema=schema, results=results)
        resolution: Any = "retry" if action == "again" else action
        return partial(
            actions.resolve, resolution=resolution, by=by, result=result, runs=runs,
            schema=schema, results=results,
        )  # fmt: skip

    async def _moved(self, move: Transition, ids: Sequence[str]) -> tuple[list[Row], list[Refusal]]:
        told: list[Future[None]] = []

        def work(connection: Connection) -> tuple[list[Row], list[Refusal]]:
            outcome = move(connection, ids)
            told.append(self._news.tell(connection, outcome))
            return [as_row(one) for one in outcome.moved], outcome.refused

        moved = await self._threads.run(work, MOVE_WITHIN)
        await self._news.heard(told)
        return moved
