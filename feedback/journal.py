"""The journal: what a worker looks up and writes. The truth about every request.

Whoever writes takes the rows' locks at the end of its transaction, in the order of the ids: first
those of rows that stand, then the new ones. So writers cannot deadlock with each other.

Operators' reads and the clerk's duties are in feedback.operators, and can be called from here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import psycopg

from feedback.copy_rows import pack_rows
from feedback.entry import Entry
from feedback.operators import (
    add_counters,
    get_status,
    list_requests,
    show_request,
    stats,
    sweep_expired_claims,
)
from feedback.queries import query
from feedback.record import Record
from feedback.standing import Standing
from feedback.states import State
from feedback.stored_headers import moment_of, pack_headers

__all__ = [
    "DeadLetter",
    "Journal",
    "LostRace",
    "add_counters",
    "get_status",
    "list_requests",
    "show_request",
    "stats",
    "sweep_expired_claims",
]

Cursor: TypeAlias = psycopg.Cursor[Any]

# A run that ended in one of these leaves a row in `attempts`.
_WITHOUT_SUCCESS = frozenset({State.FAILED, State.IN_DOUBT, State.DEAD})


class LostRace(Exception):
    """A row is no longer what the look-up saw: roll back, look up again. Never leaves a worker."""


class DeadLetter(NamedTuple):
    """A message that is no request, or not this id's."""

    record: Record
    reason: str  # malformed or conflict
    id: str | None  # where it has a valid one
    detail: str


class Journal:
    """The statements of a worker, for the journal in one schema.

    Its methods do not begin or end a transaction.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._table = query("copy_requests", schema)

    def look_up(self, cursor: Cursor, ids: Collection[str]) -> dict[str, Standing]:
        """The rows of those ids that have one."""
        cursor.execute(query("look_up", self.schema), ["\x1f".join(ids)])
        return {row[0]: Standing(*row) for row in cursor.fetchall()}

    def write(
        self,
        cursor: Cursor,
        entries: Sequence[Entry],
        created: datetime,
        finished: datetime,
        *,
        resends: Mapping[str, int] | None = None,
        letters: Sequence[DeadLetter] = (),
    ) -> None:
        """Writes all that a chunk has to say.

        Raises LostRace where a row that was to be replaced has changed, and
        psycopg.errors.UniqueViolation (see lost_race) where one appeared that was not there.
        """
        new = [entry for entry in entries if entry.standing is None]
        if resends or len(new) < len(entries):
            self._change(cursor, entries, resends or {}, finished)
        if new:
            new.sort(key=_id)
            with cursor.copy(self._table) as copy:
                for data in pack_rows(new, created, finished):
                    copy.write(data)
        self._add_attempts(cursor, entries, created, finished)
        if letters:
            self.add_dead_letters(cursor, letters)

    def lost_race(self, error: psycopg.Error) -> bool:
        """Whether an error of `write` says that somebody else has inserted one of the ids."""
        return (
            isinstance(error, psycopg.errors.UniqueViolation)
            and error.diag.constraint_name == "requests_pkey"
            and error.diag.schema_name == self.schema
        )

    def add_dead_letters(self, cursor: Cursor, letters: Sequence[DeadLetter]) -> None:
        """Keeps these messages; what is there already stays as it is."""
        # In one order everywhere: the unique constraint makes writers wait for each other.
        ordered = sorted(letters, key=lambda letter: letter.record[:3])
        cursor.executemany(query("add_dead_letter", self.schema), map(_letter, ordered))

    # External effects

    def claim(self, cursor: Cursor, entry: Entry, lease: float) -> bool:
        """Makes the request `running` by its token; False where somebody else was quicker."""
        name = "claim_request" if entry.standing is None else "update_request"
        cursor.execute(query(name, self.schema), entry.parameters(None, lease))
        return cursor.rowcount == 1

    def finish_claim(self, cursor: Cursor, entry: Entry, finished: datetime) -> bool:
        """The end of a claimed run; False where the claim is no longer its own.

        That is so where it was written before (landed tells), or an operator has decided.
        """
        cursor.execute(query("finish_claim", self.schema), entry.parameters(finished))
        if cursor.rowcount != 1:
            return False
        self._add_attempts(cursor, [entry], entry.started_at or finished, finished)
        return True

    def landed(self, cursor: Cursor, entry: Entry) -> bool:
        """Whether the end of this claimed run stands in the journal."""
        row = self.look_up(cursor, [entry.envelope.id]).get(entry.envelope.id)
        return row is not None and (row.token, row.run, row.state) == (
            entry.token,
            entry.run,
            str(entry.state),
        )

    # Other sessions

    def transaction_status(self, cursor: Cursor, transaction: int) -> str | None:
        """`committed`, `aborted` or `in progress`; None where that is too long ago."""
        cursor.execute(query("transaction_status", self.schema), [str(transaction)])
        return str(row[0]) if (row := cursor.fetchone()) is not None and row[0] else None

    def own_backend(self, cursor: Cursor) -> tuple[int, str]:
        """This session's process id and start; no other session of the server has both."""
        pid, start = cursor.execute(query("own_backend", self.schema)).fetchall()[0]
        return int(pid), str(start)

    def end_backend(self, cursor: Cursor, backend: tuple[int, str], wait: float) -> bool:
        """Ends another session; whether it is gone within `wait` seconds.

        Once it is, whatever it had under way is either committed or rolled back.
        """
        values = {"pid": backend[0], "start": backend[1], "wait_ms": int(wait * 1000)}
        row = cursor.execute(query("end_backend", self.schema), values).fetchone()
        return row is None or bool(row[0])

    def deferred_constraints(self, cursor: Cursor) -> list[str]:
        """Constraints of this database that are checked at COMMIT unless told otherwise."""
        cursor.execute(query("deferred_constraints", self.schema))
        return sorted(row[0] for row in cursor.fetchall())

    def _change(
        self,
        cursor: Cursor,
        entries: Sequence[Entry],
        resends: Mapping[str, int],
        finished: datetime,
    ) -> None:
        """Replaces rows and counts answered copies, in the order of the ids."""
        replaced = sorted((entry for entry in entries if entry.standing is not None), key=_id)
        if resends and replaced:
            # Two statements, one order of locks: take them all before.
            ids = sorted({*resends, *map(_id, replaced)})
            cursor.execute(query("lock_requests", self.schema), ["\x1f".join(ids)])
        if replaced:
            cursor.executemany(
                query("update_request", self.schema),
                [entry.parameters(finished) for entry in replaced],
            )
            if cursor.rowcount != len(replaced):
                raise LostRace
        if resends:
            counts = [(count, name) for name, count in sorted(resends.items())]
            cursor.executemany(query("count_resends", self.schema), counts)

    def _add_attempts(
        self, cursor: Cursor, entries: Sequence[Entry], created: datetime, finished: datetime
    ) -> None:
        rows = [
            (
                *(entry.envelope.id, entry.run, entry.code, entry.error or entry.reason),
                *(entry.started_at or created, finished),
            )
            for entry in entries
            if entry.state in _WITHOUT_SUCCESS
        ]
        if rows:
            rows.sort()
            cursor.executemany(query("add_attempt", self.schema), rows)


def _id(entry: Entry) -> str:
    return entry.envelope.id


def _letter(letter: DeadLetter) -> tuple[Any, ...]:
    topic, partition, offset, timestamp, key, value, headers, _ = letter.record
    packed = None if headers is None else pack_headers(headers).decode()
    return (
        *(letter.id, letter.reason, letter.detail, topic, partition, offset),
        *(moment_of(timestamp / 1000), key, packed, value),
    )
