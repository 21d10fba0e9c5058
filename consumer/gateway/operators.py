"""What operators do over HTTP: the moves of `oncepool requests` and `oncepool dead-letters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from consumer.admin.cancelling import Withdraw
from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import (
    Ending,
    as_row,
    end_running,
    explain_unjournaled,
    wants_results,
)
from consumer.config.settings import Settings
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.ended_runs import note_ends
from consumer.gateway.running_ends import MOVE_WITHIN, RunningEnds, Stopped, never
from consumer.gateway.status_news import StatusNews
from feedback.client.event_loop import in_thread
from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.journal.connections import Connection
from feedback.operations import dead_letter_actions as letter_actions
from feedback.operations import dead_letters as letters
from feedback.operations import request_actions as actions
from feedback.operations.bounded import bounded
from feedback.operations.dead_letter_actions import DEAD_LETTER
from feedback.operations.dead_letters import DeadLetterRef, Kind
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By, Resolution, TransitionOutcome
from feedback.operations.request_reads import Row
from feedback.operations.request_search import select_named
from processing.logs import get_logger

LIST_WITHIN: Final = 8.0
"""Seconds for a list of dead letters: well before its connection would be cut."""
MOST_LETTERS: Final = 500
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of payloads in a list of dead letters."""

log = get_logger("oncepool.gateway")


class OperatorAnswer(NamedTuple):
    """What became of a move: what was moved, or why not. `late`: nothing was heard in time."""

    row: Row | None = None
    refusal: Refusal | None = None
    late: bool = False


class OperatorMoves(Protocol):
    """Reads and moves requests and dead letters. Each raises OncepoolError."""

    async def type_of(self, id: str) -> str | None:
        """The type of a request of the journal; None where it has none of this id."""

    async def retry(self, id: str, by: By) -> OperatorAnswer:
        """Runs a dead, failed or cancelled request again."""

    async def cancel(
        self, id: str, by: By, wait: float, types: Sequence[str] | None = None
    ) -> OperatorAnswer:
        """Takes a request out of the queue, or ends it where it runs, within `wait` seconds.

        With `types` it is ended only where it runs as one of them.
        """

    async def resolve(
        self, id: str, resolution: Resolution, by: By, result: bytes | None, run: int | None = None
    ) -> OperatorAnswer:
        """Settles one in doubt, in any run or in this one alone. Raises ResultRefused."""

    async def dead(self, filters: Mapping[str, Any], limit: int) -> list[Row]:
        """Dead letters, the latest first."""

    async def dead_letter(self, name: str, kind: Kind | None) -> list[Row]:
        """All of this name: a message and a request may share one."""

    async def retry_dead(
        self, place: DeadLetterRef, by: By, id: str | None, type: str | None
    ) -> OperatorAnswer:
        """Runs a dead request again, or makes a request of a message."""

    async def drop_dead(self, place: DeadLetterRef, by: By) -> OperatorAnswer:
        """Cancels a dead request, or deletes a message."""


class JournalOperator:
    """On the journal, with the statuses of what is moved."""

    def __init__(
        self, settings: Settings, threads: DatabaseThreads, stopped: Stopped = never
    ) -> None:
        """`stopped` returns when all waits end."""
        self._settings = settings
        self._schema = settings.database_schema
        self._results = wants_results(settings)
        self._threads = threads
        self._ends = RunningEnds(stopped)
        self._news = StatusNews(settings)

    async def type_of(self, id: str) -> str | None:
        """As OperatorMoves has it."""
        found = await self._threads.run(
            lambda c: select_named(c, [id], schema=self._schema), MOVE_WITHIN, again=True
        )
        return found[0].type if found else None

    async def retry(self, id: str, by: By) -> OperatorAnswer:
        """As OperatorMoves has it."""
        return await self._move(lambda c: actions.retry(c, [id], by, schema=self._schema))

    async def cancel(
        self, id: str, by: By, wait: float, types: Sequence[str] | None = None
    ) -> OperatorAnswer:
        """As OperatorMoves has it."""
        answer = await self._withdrawn(id, by)
        if answer.refusal is None:
            return answer
        outcome = MoveOutcome(refused=[answer.refusal])
        asked = outcome.end_those_that_run()

        async def withdraw(ids: Sequence[str]) -> list[Row]:
            rows = [(await self._withdrawn(one, by)).row for one in ids]
            return [row for row in rows if row is not None]

        def end(withdraw: Withdraw) -> OperatorAnswer:
            ending = Ending(wait, types)
            outcome.ended(end_running(self._settings, asked, withdraw, ending, by))
            if outcome.problem:  # it may run, and nobody was asked
                raise StoreUnavailable(outcome.problem)
            return self._explained(_answer(outcome))

        answer = await self._ends.end(end, withdraw, wait)
        if answer.row is not None:
            await note_ends(self._threads, [answer.row], by, self._schema)
        return answer

    async def resolve(
        self, id: str, resolution: Resolution, by: By, result: bytes | None, run: int | None = None
    ) -> OperatorAnswer:
        """As OperatorMoves has it."""
        resolve = partial(
            actions.resolve, schema=self._schema, results=self._results,
            result=result, runs=None if run is None else {id: run},
        )  # fmt: skip
        return await self._move(lambda c: resolve(c, [id], resolution, by))

    async def dead(self, filters: Mapping[str, Any], limit: int) -> list[Row]:
        """As OperatorMoves has it."""

        def read(connection: Connection) -> list[Row]:
            with bounded(connection, LIST_WITHIN):
                return letters.list_dead(
                    connection, filters, limit, schema=self._schema, most_bytes=MOST_BYTES
                )

        return await self._threads.run(read, MOVE_WITHIN, again=True)

    async def dead_letter(self, name: str, kind: Kind | None) -> list[Row]:
        """As OperatorMoves has it."""

        def read(connection: Connection) -> list[Row]:
            kinds = letters.kinds_of(connection, name, schema=self._schema)
            rows = [
                letters.show_dead(connection, DeadLetterRef(one, name), schema=self._schema)
                for one in kinds
                if kind in (None, one)
            ]
            return [row for row in rows if row is not None]

        return await self._threads.run(read, MOVE_WITHIN, again=True)

    async def retry_dead(
        self, place: DeadLetterRef, by: By, id: str | None, type: str | None
    ) -> OperatorAnswer:
        """As OperatorMoves has it."""
        if place.kind == "request":
            return await self._move(
                lambda c: actions.retry(
                    c,
                    [place.name],
                    by,
                    states=(State.DEAD,),
                    runs=place.runs,
                    schema=self._schema,
                )
            )

        def move(connection: Connection) -> TransitionOutcome:
            made = letter_actions.retry_letter(
                connection, int(place.name), by, id=id, type=type, schema=self._schema
            )
            if isinstance(made, Refusal):
                return TransitionOutcome([], [made])
            return TransitionOutcome([made], [])

        return await self._moved(move)

    async def drop_dead(self, place: DeadLetterRef, by: By) -> OperatorAnswer:
        """As OperatorMoves has it."""
        if place.kind == "request":
            return await self._move(
                lambda c: actions.drop(
                    c,
                    [place.name],
                    by,
                    runs=place.runs,
                    schema=self._schema,
                    results=self._results,
                )
            )

        def work(connection: Connection) -> OperatorAnswer:
            missed = letter_actions.drop_letters(
                connection, [int(place.name)], by, schema=self._schema
            )
            if missed:
                return OperatorAnswer(refusal=missed[0])
            log.info("dead letter dropped", number=place.name, who=by.who, why=by.why)
            return OperatorAnswer({"id": place.name, "from_state": DEAD_LETTER, "state": "dropped"})

        return await self._threads.run(work, MOVE_WITHIN)

    async def _move(self, move: Callable[[Connection], TransitionOutcome]) -> OperatorAnswer:
        answer = await self._moved(move)
        if answer.refusal is None or answer.refusal.state is not None:
            return answer
        return await in_thread(self._explained, answer)

    async def _moved(self, move: Callable[[Connection], TransitionOutcome]) -> OperatorAnswer:
        told: list[Future[None]] = []

        def work(connection: Connection) -> OperatorAnswer:
            outcome = move(connection)
            told.append(self._news.tell(connection, outcome))
            if not outcome.moved:
                return OperatorAnswer(refusal=outcome.refused[0])
            return OperatorAnswer(as_row(outcome.moved[0]))

        answer = await self._threads.run(work, MOVE_WITHIN)
        await self._news.heard(told)
        return answer

    def _explained(self, answer: OperatorAnswer) -> OperatorAnswer:
        """Of an id that the journal does not know it is said where it runs, or how it stands.

        Raises StoreUnavailable where Redis does not say so.
        """
        if answer.refusal is None or answer.late:
            return answer
        return OperatorAnswer(refusal=explain_unjournaled(self._settings, [answer.refusal])[0])

    def _cancelling(self, id: str, by: By) -> Callable[[Connection], TransitionOutcome]:
        return lambda c: actions.cancel(c, [id], by, schema=self._schema, results=self._results)

    async def _withdrawn(self, id: str, by: By) -> OperatorAnswer:
        """Cancelled where it waits."""
        return await self._moved(self._cancelling(id, by))


def _answer(outcome: MoveOutcome) -> OperatorAnswer:
    """Of one request."""
    if outcome.rows:
        return OperatorAnswer(outcome.rows[0])
    if outcome.late:
        return OperatorAnswer(refusal=outcome.late[0], late=True)
    return OperatorAnswer(refusal=outcome.refused[0])
