"""What the executor reads and writes in the journal, inside its own transactions.

What finds rows by a list of ids is never prepared (see `queries.execute`).

Rows of new ids are written by one binary COPY, sorted by id; ids that have a row that is not final
are finished by an UPDATE guarded by its run number, state and token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import orjson
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from feedback.contract.record import Record, is_read_again, place_text
from feedback.contract.states import State
from feedback.journal import done_rows
from feedback.journal.database_errors import Overtaken
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.done_rows import copied
from feedback.journal.queries import query
from feedback.journal.rows import FailedRun, RequestRow, StoredRequest

COLUMNS = (
    "id", "type", "state", "code", "attempt", "run", "crashes", "fingerprint", "result", "error",
    "reason", "key", "reference", "payload", "headers", "topic", "partition", "kafka_offset",
    "produced_at", "effect", "finished_at", "own_fingerprint",
)  # fmt: skip
# What is finished for good leaves these as they are by default, and a column costs.
OPEN_COLUMNS = (
    *COLUMNS, "used", "not_before", "due_at", "window_start", "coalesce_key", "superseded_by",
    "status_ttl", "lost_claims",
)  # fmt: skip
TYPES = (
    "text", "text", "text", "text", "int4", "int4", "int4", "bytea", "jsonb", "text",
    "text", "bytea", "text", "bytea", "jsonb", "text", "int4", "int8",
    "timestamptz", "text", "timestamptz", "bool",
)  # fmt: skip
OPEN_TYPES = (
    *TYPES, "int4", "timestamptz", "timestamptz", "timestamptz", "text", "text", "int4", "int4",
)  # fmt: skip
CLOSED = frozenset({State.DONE, State.REJECTED})
_NAMES = tuple(name for name in OPEN_COLUMNS if name != "due_at")


def _same(data: Any) -> Any:
    return data


def _jsonb(data: bytes | None) -> Jsonb | None:
    return None if data is None else Jsonb(data, dumps=_same)


class JournalWriter:
    """Looks up, writes and changes rows, for one schema. For any connection, in any transaction."""

    def __init__(self, schema: str) -> None:
        def copy(columns: Sequence[str]) -> sql.Composed:
            names = sql.SQL(", ").join(map(sql.Identifier, columns))
            table = sql.Identifier(schema, "requests")
            return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, names)

        self._copy, self._copy_open = copy(COLUMNS), copy(OPEN_COLUMNS)
        self._copy_done = copy(done_rows.COLUMNS)
        self._schema = schema

    def _text(self, name: str) -> str:
        return query(name, self._schema)

    def find(self, cursor: psycopg.Cursor[Any], ids: Sequence[str]) -> dict[str, StoredRequest]:
        """The rows of these ids."""
        # Ids hold no control characters: joined they are cheaper to send than an array.
        cursor.execute(self._text("find_rows"), ("\x1f".join(ids),), prepare=False)
        return {row[0]: StoredRequest(*row) for row in cursor.fetchall()}

    def insert_done(self, cursor: psycopg.Cursor[Any], rows: Sequence[bytes]) -> None:
        """Writes rows that `done_row` made, in the order of their ids. Raises as insert()."""
        with self.copying_done(cursor) as copy:
            copy.write(copied(rows))

    def copying_done(self, cursor: psycopg.Cursor[Any]) -> AbstractContextManager[psycopg.Copy]:
        """Takes what `copied` made of such rows, and writes it when it is left."""
        return cursor.copy(self._copy_done)

    def insert(self, cursor: psycopg.Cursor[Any], rows: Iterable[RequestRow]) -> None:
        """Writes rows of new ids. Raises UniqueViolation where an id has a row by now."""
        closed: list[RequestRow] = []
        still_open: list[RequestRow] = []
        for row in sorted(rows, key=_id_of):
            (closed if row.state in CLOSED else still_open).append(row)
        if closed:
            with cursor.copy(self._copy) as copy:
                copy.set_types(TYPES)
                for row in closed:
                    copy.write_row(_values(row))
        if still_open:
            with cursor.copy(self._copy_open) as copy:
                copy.set_types(OPEN_TYPES)
                for row in still_open:
                    copy.write_row(
                        (
                            *_values(row), row.used, row.not_before, row.not_before,
                            row.window_start, row.coalesce_key, row.superseded_by,
                            row.status_ttl, row.lost_claims,
                        )
                    )  # fmt: skip

    def insert_missing(self, cursor: psycopg.Cursor[Any], rows: Iterable[RequestRow]) -> set[str]:
        """Writes rows that wait, of ids that may have one already; the ids that had none."""
        written = set()
        for row in sorted(rows, key=_id_of):
            cursor.execute(self._text("insert_missing_row"), _fields(row))
            if cursor.rowcount == 1:
                written.add(row.id)
        return written

    def update(
        self, cursor: psycopg.Cursor[Any], changes: Iterable[tuple[RequestRow, StoredRequest]]
    ) -> None:
        """Finishes rows that are not final. Raises Overtaken where one has moved meanwhile."""
        together: list[tuple[RequestRow, StoredRequest]] = []
        alone: list[tuple[RequestRow, StoredRequest]] = []
        for row, was in sorted(changes, key=lambda change: change[0].id):
            done = row.state == State.DONE and was.state == State.WAITING
            (together if done else alone).append((row, was))
        if together and alone:
            self.lock(cursor, [row.id for row, _ in (*together, *alone)])
        for row, was in alone:
            self._change(cursor, self._text("update_row"), row, was)
        if together:
            self._finish_together(cursor, together)

    def delete(self, cursor: psycopg.Cursor[Any], row: RequestRow, was: StoredRequest) -> None:
        """Removes a row that need not be kept, and its timeline.

        Raises Overtaken where it has moved meanwhile.
        """
        self._change(cursor, self._text("delete_row"), row, was)

    def _change(
        self, cursor: psycopg.Cursor[Any], statement: str, row: RequestRow, was: StoredRequest
    ) -> None:
        cursor.execute(statement, {**_fields(row), **_guard(was)})
        if cursor.rowcount != 1:
            raise Overtaken(row.id)

    def _finish_together(
        self, cursor: psycopg.Cursor[Any], changes: Sequence[tuple[RequestRow, StoredRequest]]
    ) -> None:
        rows = [row for row, _ in changes]
        cursor.execute(self._text("lock_rows"), ([row.id for row in rows],), prepare=False)
        cursor.execute(
            self._text("finish_rows"),
            {
                "ids": [row.id for row in rows],
                "runs": [was.run for _, was in changes],
                "tokens": [was.token for _, was in changes],
                "codes": [row.code for row in rows],
                "attempts": [row.attempt for row in rows],
                "used": [row.used for row in rows],
                "new_runs": [row.run for row in rows],
                "crashes": [row.crashes for row in rows],
                "fingerprints": [row.fingerprint for row in rows],
                "owns": [row.own_fingerprint for row in rows],
                "results": [row.result and row.result.decode() for row in rows],
                "ends": [row.finished_at for row in rows],
            },
            prepare=False,
        )
        if cursor.rowcount != len(rows):
            raise Overtaken(f"one of {len(rows)} claimed rows")

    def add_attempts(self, cursor: psycopg.Cursor[Any], attempts: Sequence[FailedRun]) -> None:
        """Keeps runs that did not succeed; one that is kept already stays as it is."""
        if len(attempts) == 1:
            cursor.execute(self._text("add_attempt"), attempts[0])
        elif attempts:
            cursor.executemany(self._text("add_attempt"), attempts)

    def lock(self, cursor: psycopg.Cursor[Any], ids: Iterable[str]) -> None:
        """Locks rows in the order of their ids, as all do that lock several."""
        cursor.execute(self._text("lock_rows"), (sorted(set(ids)),), prepare=False)

    def add_resends(self, cursor: psycopg.Cursor[Any], copies: Mapping[str, Record]) -> None:
        """Counts that these ids were sent again and answered, with the messages that did it.

        After `lock`, where they are several. A message is counted once, though its answer may be
        given twice: where nobody knows whether the first one's COMMIT landed, or where it is read
        again. The message that made the row what it is counts for nothing.
        """
        if not copies:
            return
        places = {name: place_text(record) for name, record in copies.items()}
        again = [name for name, record in copies.items() if is_read_again(record)]
        values = {"ids": sorted(places), "places": _jsonb(orjson.dumps(places)), "again": again}
        cursor.execute(self._text("add_resends"), values, prepare=False)

    def add_letter(self, cursor: psycopg.Cursor[Any], letter: DeadLetter) -> None:
        """Keeps a dead letter; the same message a second time, or conflict, changes nothing."""
        columns = letter.columns()
        columns["headers"] = _jsonb(columns["headers"])
        cursor.execute(self._text("add_letter"), columns)

    def claim(
        self,
        cursor: psycopg.Cursor[Any],
        row: RequestRow,
        was: StoredRequest | None,
        token: str,
        lease: float,
    ) -> bool:
        """Claims a request with external effects; False where another copy was quicker."""
        fields = {**_fields(row), "token": token, "lease": lease}
        if was is None:
            cursor.execute(self._text("claim_external"), fields)
        else:
            cursor.execute(self._text("claim_external_again"), {**fields, **_guard(was)})
        return cursor.rowcount == 1

    def finish_claim(self, cursor: psycopg.Cursor[Any], row: RequestRow, token: str) -> int:
        """Writes the final row of a claim; its run. Raises Overtaken where the token is another."""
        cursor.execute(self._text("finish_external"), {**_fields(row), "token": token})
        found = cursor.fetchone()
        if found is None:
            raise Overtaken(row.id)
        run: int = found[0]
        return run

    def stays_in_doubt(self, cursor: psycopg.Cursor[Any], request_id: str, token: str) -> None:
        """Notes that the check of a claim in doubt was asked, and could not tell."""
        cursor.execute(self._text("stays_in_doubt"), [request_id, token])


def _id_of(row: RequestRow) -> str:
    return row.id


def _values(r: RequestRow) -> tuple[Any, ...]:
    """In the order of COLUMNS."""
    return (
        r.id, r.type, r.state, r.code, r.attempt, r.run, r.crashes, r.fingerprint,
        _jsonb(r.result), r.error, r.reason, r.key, r.reference, r.payload,
        _jsonb(r.headers), r.topic, r.partition, r.kafka_offset, r.produced_at,
        r.effect, r.finished_at, r.own_fingerprint,
    )  # fmt: skip


def _fields(row: RequestRow) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in _NAMES}
    fields["result"], fields["headers"] = _jsonb(row.result), _jsonb(row.headers)
    fields["due_at"], fields["keeps_payload"] = row.not_before, row.keeps_payload
    fields["asked_by"] = row.asked_by
    return fields


def _guard(was: StoredRequest) -> dict[str, Any]:
    """What a row must still be like to be changed."""
    return {"was_run": was.run, "was_state": was.state, "was_token": was.token}
