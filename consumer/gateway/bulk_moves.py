"""Operators' moves of many requests and dead letters at once, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Protocol

from consumer.admin.cancelling import Cancelled, Withdraw
from consumer.admin.moving import StatusPublisher, as_row, end_running, wants_results
from consumer.config.settings import Settings
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.running_ends import MOVE_WITHIN, RunningEnds
from feedback.contract.states import State
from feedback.errors import OncepoolError, StoreUnavailable
from feedback.journal.connections import Connection
from feedback.operations import request_actions as actions
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import AT_ONCE, RETRYABLE, By, Runs, TransitionOutcome
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

Move = Callable[[Connection, Sequence[str]], TransitionOutcome]

log = get_logger("oncepool.gateway")


@dataclass(slots=True)
class BulkOutcome:
    """What was moved, and what was not and why."""

    rows: list[Row] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    late: list[Refusal] = field(default_factory=list)
    """Those that run, and of which nothing was heard in time."""
    problem: str = ""
    """Why it broke off, where it did."""
    unsure: list[str] = field(default_factory=list)
    """Those that it was at then: they may have been moved, or not."""
    untried: list[str] = field(default_factory=list)

    def broke_off(self, error: OncepoolError, at: Iterable[str], left: Iterable[str]) -> None:
        """It came to no end: these may have been moved, and those were not tried."""
        self.problem = str(error)
        self.unsure += at
        self.untried += left


class Ending(NamedTuple):
    """How requests that run are ended: within so many seconds."""

    wait: float
    types: tuple[str, ...] | None = None
    """Only what runs as one of them; None: whatever it is."""


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
    ) -> BulkOutcome:
        """Moves all of them that may be moved; with `ending` also those that run, on `cancel`.

        With `runs` each only in its run. `result` is what was done: JSON. Raises ResultRefused.
        """


class JournalBulkMover:
    """On the journal, with the statuses of what is moved."""

    def __init__(self, settings: Settings, threads: DatabaseThreads) -> None:
        self._settings = settings
        self._threads = threads
        self._ends = RunningEnds()

    async def move(
        self,
        action: BulkAction,
        ids: Sequence[str],
        by: By,
        ending: Ending | None = None,
        *,
        runs: Runs | None = None,
        result: bytes | None = None,
    ) -> BulkOutcome:
        """As BulkMover has it."""
        outcome = BulkOutcome()
        schema = self._settings.database_schema
        move = self._moves(action, by, runs, result)
        wanted = list(dict.fromkeys(ids))
        if action == "retry":
            order = partial(actions.in_retry_order, ids=wanted, schema=schema)
            wanted = list(await self._threads.run(order, MOVE_WITHIN, again=True))
        for start in range(0, len(wanted), AT_ONCE):
            part = wanted[start : start + AT_ONCE]
            try:
                rows, refused = await self._threads.run(
                    partial(self._part, move=move, ids=part), MOVE_WITHIN
                )
            except OncepoolError as error:
                outcome.broke_off(error, part, wanted[start + AT_ONCE :])
                break
            outcome.rows += rows
            outcome.refused += refused
        if ending is not None and action == "cancel" and outcome.refused and not outcome.problem:
            await self._end_running(outcome, move, by, ending)
        log.info("requests moved", action=action, who=by.who, why=by.why, problem=outcome.problem,
                 moved=len(outcome.rows), refused=len(outcome.refused),
                 unsure=len(outcome.unsure), untried=len(outcome.untried))  # fmt: skip
        return outcome

    async def _end_running(self, outcome: BulkOutcome, move: Move, by: By, ending: Ending) -> None:
        async def withdraw(ids: Sequence[str]) -> list[Row]:
            part = partial(self._part, move=move, ids=ids)
            rows, _ = await self._threads.run(part, MOVE_WITHIN)
            return rows

        end = partial(self._end, refused=outcome.refused, by=by, ending=ending)
        try:
            self._add(outcome, await self._ends.end(end, withdraw, ending.wait))
        except OncepoolError as error:
            outcome.broke_off(error, [one.id for one in outcome.refused], ())
            outcome.refused = []

    def _moves(self, action: BulkAction, by: By, runs: Runs | None, result: bytes | None) -> Move:
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

    def _part(
        self, connection: Connection, *, move: Move, ids: Sequence[str]
    ) -> tuple[list[Row], list[Refusal]]:
        outcome = move(connection, ids)
        if outcome.moved:
            with StatusPublisher(self._settings, log.warning) as publisher:
                publisher.publish(one.status() for one in outcome.moved)
        return [as_row(one) for one in outcome.moved], outcome.refused

    def _end(
        self, withdraw: Withdraw, *, refused: Sequence[Refusal], by: By, ending: Ending
    ) -> Cancelled:
        """Those of the refused that run come to an end."""
        try:
            return end_running(
                self._settings,
                refused,
                withdraw,
                reason=by.said("cancelled"),
                wait=ending.wait,
                types=ending.types,
            )
        except StoreUnavailable:
            return Cancelled()

    def _add(self, outcome: BulkOutcome, ended: Cancelled) -> None:
        told = {row["id"] for row in ended.rows} | {one.id for one in (*ended.ended, *ended.late)}
        outcome.refused = [one for one in outcome.refused if one.id not in told] + ended.ended
        outcome.rows += ended.rows
        outcome.late += ended.late
