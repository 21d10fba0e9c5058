"""What the journal and the outbox know of requests, asked by many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from consumer.gateway.database import DatabaseThreads
from feedback.contract.states import OK, SETTLED, State
from feedback.journal.connections import Connection
from feedback.operations.request_actions import DROPPED
from feedback.operations.request_reads import get_statuses
from feedback.outbox.names import CONFLICT, DROPPED_CONFLICT, in_schema
from feedback.status.status import Status

READ_WITHIN: Final = 3.0
AT_ONCE: Final = 500

_OUTBOX: Final = """
SELECT o.id, o.type, o.state, o.code, o.result, o.error,
    coalesce(o.settled_at, o.sent_at, o.created_at),
    encode(coalesce(r.fingerprint, f.fingerprint), 'hex'),
    o.settled_at IS NOT NULL, o.sent_at IS NOT NULL
FROM :schema.all_requests o
LEFT JOIN :schema.requests r ON r.id = o.id
LEFT JOIN :schema.finished f ON f.id = o.id
WHERE o.id = ANY(%s)
"""

Lookup = Callable[[Connection, Sequence[str]], dict[str, Status]]


class SharedSource:
    """What is asked for while a statement runs is the next statement, all at once.

    So a thousand that wait cost the database a few statements a second.
    """

    def __init__(self, threads: DatabaseThreads, look_up: Lookup) -> None:
        self._threads = threads
        self._look_up = look_up
        self._wanted: dict[str, None] = {}
        self._next: asyncio.Future[dict[str, Status]] | None = None
        self._running = False

    async def read(self, ids: Sequence[str]) -> list[Status | None]:
        """As StatusSource has it."""
        self._wanted |= dict.fromkeys(ids)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        answer = self._next
        if not self._running:
            self._running = True
            self._task = asyncio.create_task(self._run())
        found = await asyncio.shield(answer)
        return [found.get(name) for name in ids]

    async def _run(self) -> None:
        try:
            while self._next is not None:
                answer, self._next = self._next, None
                wanted, self._wanted = list(self._wanted), {}
                await self._answer(answer, wanted)
        finally:
            self._running = False

    async def _answer(self, answer: asyncio.Future[dict[str, Status]], ids: list[str]) -> None:
        found: dict[str, Status] = {}
        try:
            for part in _parts(ids):
                found |= await self._threads.run(
                    lambda connection, part=part: self._look_up(connection, part),  # type: ignore[misc]
                    READ_WITHIN,
                    again=True,
                )
        except Exception as error:  # noqa: BLE001  (raised where it is awaited)
            answer.set_exception(error)
            answer.exception()  # also where all who asked have gone
        else:
            answer.set_result(found)


def journal_source(threads: DatabaseThreads, schema: str) -> SharedSource:
    """The rows of the journal."""
    return SharedSource(
        threads, lambda connection, ids: get_statuses(connection, ids, schema=schema)
    )


def outbox_source(threads: DatabaseThreads, schema: str) -> SharedSource:
    """The rows of an outbox.

    What no consumer has reported on is `accepted`, with its state in the outbox as the code, until
    it has ended there all the same.
    """
    text = in_schema(_OUTBOX, schema).encode()

    def look_up(connection: Connection, ids: Sequence[str]) -> dict[str, Status]:
        return {row[0]: _status(row) for row in connection.execute(text, [list(ids)])}

    return SharedSource(threads, look_up)


def _status(row: Sequence[Any]) -> Status:
    id_, kind, state, code, result, error, at, fingerprint, ended, sent = row
    if state in set(State):
        shown, why = State(state), code or OK
    elif ended:
        shown, why = _without_answer(code, sent=sent)
    else:
        shown, why = State.ACCEPTED, state
    made = int(shown in SETTLED)
    return Status(
        id=id_, type=kind, state=shown, code=why, attempt=made, run=made, at=at,
        fingerprint=fingerprint, result=result, error=error,
    )  # fmt: skip


def _without_answer(code: str | None, *, sent: bool) -> tuple[State, str]:
    """State and code of a row that nothing will be heard of: nobody need wait for that.

    An operator has dropped it, or consumers have refused it as another request's copy.
    """
    if code in (CONFLICT, DROPPED_CONFLICT):
        return State.REJECTED, CONFLICT
    return (State.IN_DOUBT if sent else State.CANCELLED), DROPPED


def _parts(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]
