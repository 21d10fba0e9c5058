"""What the journal and the outbox know of requests, asked by many at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from consumer.admin.journal import JournalBusy
from consumer.gateway.database import DatabaseThreads
from feedback.contract.states import OK, SETTLED, State
from feedback.journal.connections import Connection
from feedback.operations.request_actions import DROPPED
from feedback.operations.request_reads import get_statuses
from feedback.outbox.names import CONFLICT, DROPPED_CONFLICT, in_schema
from feedback.status.status import Status

READ_WITHIN: Final = 3.0
"""Seconds for a statement."""
ANSWERED_WITHIN: Final = 3 * READ_WITHIN
"""Seconds for whoever asks: what is under way of others comes first."""
AT_ONCE: Final = 100
LONG: Final = 0.2
"""Seconds after which a statement keeps back no other."""
STATEMENTS: Final = 2
"""At a time."""

_OUTBOX: Final = """
SELECT o.id, o.type, o.state, o.code, o.result, o.error,
    coalesce(o.settled_at, o.sent_at, o.created_at),
    encode(CASE WHEN o.settled_at IS NULL THEN r.fingerprint ELSE f.fingerprint END, 'hex'),
    o.settled_at IS NOT NULL, o.sent_at IS NOT NULL
FROM :schema.all_requests o
LEFT JOIN :schema.requests r ON r.id = o.id
LEFT JOIN :schema.finished f ON f.id = o.id
WHERE o.id = ANY(%s)
"""

Lookup = Callable[[Connection, Sequence[str]], dict[str, Status]]
_Answers: TypeAlias = dict[str, asyncio.Future[Status | None]]
"""What is given to those who wait for an id."""


class SharedSource:
    """What is asked for while a statement runs is the next statement, all at once.

    So a thousand that wait cost the database a few statements a second. One that takes long has
    another one run beside it, with none of its ids: an id that takes long keeps back no other.
    A statement has AT_ONCE ids at most, who asked first first, and they are answered at its end.
    """

    def __init__(self, threads: DatabaseThreads, look_up: Lookup) -> None:
        self._threads = threads
        self._look_up = look_up
        self._wanted: _Answers = {}
        self._askers: Counter[asyncio.Future[Status | None]] = Counter()
        self._task: asyncio.Task[None] | None = None

    async def read(self, ids: Sequence[str]) -> list[Status | None]:
        """As StatusSource has it. Raises JournalBusy where its turn does not come in time."""
        loop = asyncio.get_running_loop()
        asked = {name: self._wanted.setdefault(name, loop.create_future()) for name in ids}
        self._askers.update(asked.values())
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:  # who is cancelled here takes no other along
            _, late = await asyncio.wait(asked.values(), timeout=ANSWERED_WITHIN)
        finally:
            self._leave(asked)
        if late:
            raise JournalBusy(
                f"others ask for so many requests that the database came to"
                f" {len(asked) - len(late)} of {len(asked)} within {ANSWERED_WITHIN:g} s: try again"
            )
        return [asked[name].result() for name in ids]

    def _leave(self, asked: _Answers) -> None:
        """What nobody waits for any more is not asked."""
        for name, answer in asked.items():
            self._askers[answer] -= 1
            if not self._askers[answer]:
                del self._askers[answer]
                if self._wanted.get(name) is answer:
                    del self._wanted[name]

    async def _run(self) -> None:
        statements: dict[asyncio.Task[None], _Answers] = {}
        try:
            while self._wanted or statements:
                # What is asked now has to see what is there now.
                asked = {name for answers in statements.values() for name in answers}
                free = islice((n for n in self._wanted if n not in asked), AT_ONCE)
                batch = {name: self._wanted.pop(name) for name in list(free)}
                if batch:
                    statements[asyncio.create_task(self._answer(batch))] = batch
                ended, _ = await asyncio.wait(
                    statements,
                    timeout=LONG if len(statements) < STATEMENTS else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for statement in ended:
                    del statements[statement]
        finally:
            self._task = None

    async def _answer(self, answers: _Answers) -> None:
        ids = list(answers)
        try:
            found = await self._threads.run(
                lambda connection: self._look_up(connection, ids), READ_WITHIN, again=True
            )
        except Exception as error:  # noqa: BLE001  (raised where it is awaited)
            for answer in answers.values():
                answer.set_exception(error)
                answer.exception()  # also where all who asked have gone
        else:
            for name, answer in answers.items():
                answer.set_result(found.get(name))


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
