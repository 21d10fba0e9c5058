"""What the executor reads and writes in the journal, inside its own transactions.

Rows of new ids are written by one binary COPY, sorted by id; ids that have a row that is not final
are finished by an UPDATE guarded by its run number, state and token.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from feedback.record import Headers, Record


class Overtaken(Exception):
    """A guarded UPDATE missed its row: another copy of the request moved it meanwhile."""


class Stored(NamedTuple):
    """A row of the journal as the look-up finds it."""

    id: str
    type: str
    state: str
    code: str
    attempt: int
    run: int
    crashes: int
    fingerprint: bytes | None
    result: str | None
    error: str | None
    reason: str | None
    superseded_by: str | None
    token: str | None
    topic: str | None
    partition: int | None
    kafka_offset: int | None


@dataclass(slots=True)
class Row:
    """A row to write. `result` and `headers` are JSON bytes."""

    id: str
    type: str
    state: str
    code: str
    attempt: int
    run: int
    crashes: int
    fingerprint: bytes | None
    result: bytes | None
    error: str | None
    reason: str | None
    key: bytes | None
    reference: str | None
    payload: bytes | None
    headers: bytes | None
    topic: str
    partition: int
    kafka_offset: int
    produced_at: datetime
    effect: str
    finished_at: datetime | None


class Attempt(NamedTuple):
    """A run that did not succeed, for the request's timeline."""

    request_id: str
    run: int
    code: str
    error: str | None
    started_at: datetime
    ended_at: datetime


class Letter(NamedTuple):
    """A message that can't become a request, or conflicts with a stored one."""

    request_id: str | None
    reason: str
    error: str
    record: Record


COLUMNS = (
    "id", "type", "state", "code", "attempt", "run", "crashes", "fingerprint", "result", "error",
    "reason", "key", "reference", "payload", "headers", "topic", "partition", "kafka_offset",
    "produced_at", "effect", "finished_at",
)  # fmt: skip
TYPES = (
    "text", "text", "text", "text", "int4", "int4", "int4", "bytea", "jsonb", "text",
    "text", "bytea", "text", "bytea", "jsonb", "text", "int4", "int8",
    "timestamptz", "text", "timestamptz",
)  # fmt: skip


def _same(data: Any) -> Any:
    return data


def _jsonb(data: bytes | None) -> Jsonb | None:
    return None if data is None else Jsonb(data, dumps=_same)


def headers_json(headers: Headers | None) -> bytes:
    """A message's headers as the journal keeps them: [[name, value in base64 or null], ...]."""
    return orjson.dumps(
        [
            [name, None if value is None else base64.b64encode(value).decode()]
            for name, value in headers or ()
        ]
    )


class Rows:
    """The executor's statements, for one schema."""

    def __init__(self, schema: str) -> None:
        def text(template: str) -> sql.Composed:
            names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
            return sql.SQL(template).format(s=sql.Identifier(schema), columns=names)

        self._find = text(
            "SELECT id, type, state, code, attempt, run, crashes, fingerprint, result::text, error,"
            " reason, superseded_by, token, topic, partition, kafka_offset"
            " FROM {s}.requests WHERE id = ANY(%s)"
        )
        self._copy = text("COPY {s}.requests ({columns}) FROM STDIN (FORMAT binary)")
        self._update = text(
            "UPDATE {s}.requests SET state = %(state)s, code = %(code)s, attempt = %(attempt)s,"
            " run = %(run)s, crashes = %(crashes)s,"
            " fingerprint = coalesce(%(fingerprint)s, fingerprint),"
            " result = %(result)s, error = %(error)s, reason = %(reason)s, key = %(key)s,"
            " payload = %(payload)s, headers = %(headers)s, topic = %(topic)s,"
            " partition = %(partition)s, kafka_offset = %(kafka_offset)s,"
            " finished_at = %(finished_at)s, token = NULL, lease_until = NULL"
            " WHERE id = %(id)s AND run = %(was_run)s AND state = %(was_state)s"
            " AND token IS NOT DISTINCT FROM %(was_token)s"
        )
        self._attempt = text(
            "INSERT INTO {s}.attempts (request_id, run, code, error, started_at, ended_at)"
            " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        )
        self._resent = text(
            "WITH locked AS (SELECT id FROM {s}.requests WHERE id = ANY(%s) ORDER BY id FOR UPDATE)"
            " UPDATE {s}.requests r SET resends = r.resends + 1 FROM locked WHERE r.id = locked.id"
        )
        self._letter = text(
            "INSERT INTO {s}.dead_letters (request_id, reason, detail, topic, partition,"
            " kafka_offset, produced_at, key, headers, payload)"
            " SELECT %(id)s::text, %(reason)s::text, %(detail)s::text, %(topic)s::text,"
            " %(partition)s::int, %(offset)s::bigint, %(produced)s::timestamptz, %(key)s::bytea,"
            " %(headers)s::jsonb, %(payload)s::bytea"
            # A conflict that is sent again and again is one dead letter, until that is dealt with.
            " WHERE %(reason)s::text <> 'conflict' OR NOT EXISTS (SELECT FROM {s}.dead_letters d"
            " WHERE d.request_id = %(id)s::text AND d.reason = 'conflict'"
            " AND d.detail = %(detail)s::text AND d.retried_at IS NULL"
            " AND d.payload IS NOT DISTINCT FROM %(payload)s::bytea)"
            " ON CONFLICT DO NOTHING"
        )
        self._claim = text(
            "INSERT INTO {s}.requests (id, type, state, code, attempt, run, crashes, fingerprint,"
            " key, reference, payload, headers, topic, partition, kafka_offset, produced_at,"
            " effect, token, lease_until)"
            " VALUES (%(id)s, %(type)s, 'running', 'claimed', %(attempt)s, %(run)s, %(crashes)s,"
            " %(fingerprint)s, %(key)s, %(reference)s, %(payload)s, %(headers)s, %(topic)s,"
            " %(partition)s, %(kafka_offset)s, %(produced_at)s, 'external', %(token)s,"
            " now() + make_interval(secs => %(lease)s)) ON CONFLICT DO NOTHING"
        )
        self._claim_again = text(
            "UPDATE {s}.requests SET state = 'running', code = 'claimed', attempt = %(attempt)s,"
            " run = %(run)s, fingerprint = coalesce(%(fingerprint)s, fingerprint),"
            " payload = %(payload)s, headers = %(headers)s, topic = %(topic)s,"
            " partition = %(partition)s, kafka_offset = %(kafka_offset)s, effect = 'external',"
            " token = %(token)s, lease_until = now() + make_interval(secs => %(lease)s),"
            " finished_at = NULL, error = NULL, reason = NULL"
            " WHERE id = %(id)s AND run = %(was_run)s AND state = %(was_state)s"
        )
        self._final = text(
            "UPDATE {s}.requests SET state = %(state)s, code = %(code)s, result = %(result)s,"
            " error = %(error)s, reason = %(reason)s, payload = %(payload)s, headers = %(headers)s,"
            " crashes = %(crashes)s, finished_at = %(finished_at)s, lease_until = NULL"
            " WHERE id = %(id)s AND token = %(token)s AND state IN ('running', 'in_doubt')"
        )

    def find(self, cursor: psycopg.Cursor[Any], ids: Sequence[str]) -> dict[str, Stored]:
        """The rows of these ids."""
        cursor.execute(self._find, (list(ids),))
        return {row[0]: Stored(*row) for row in cursor.fetchall()}

    def insert(self, cursor: psycopg.Cursor[Any], rows: Iterable[Row]) -> None:
        """Writes rows of new ids. Raises UniqueViolation where an id has a row by now."""
        with cursor.copy(self._copy) as copy:
            copy.set_types(TYPES)
            for r in sorted(rows, key=_id_of):
                copy.write_row(
                    (
                        r.id, r.type, r.state, r.code, r.attempt, r.run, r.crashes, r.fingerprint,
                        _jsonb(r.result), r.error, r.reason, r.key, r.reference, r.payload,
                        _jsonb(r.headers), r.topic, r.partition, r.kafka_offset, r.produced_at,
                        r.effect, r.finished_at,
                    )
                )  # fmt: skip

    def update(self, cursor: psycopg.Cursor[Any], changes: Iterable[tuple[Row, Stored]]) -> None:
        """Finishes rows that are not final. Raises Overtaken where one has moved meanwhile."""
        for row, was in sorted(changes, key=lambda change: change[0].id):
            cursor.execute(
                self._update,
                {
                    **_fields(row),
                    "was_run": was.run,
                    "was_state": was.state,
                    "was_token": was.token,
                },
            )
            if cursor.rowcount != 1:
                raise Overtaken(row.id)

    def add_attempts(self, cursor: psycopg.Cursor[Any], attempts: Sequence[Attempt]) -> None:
        """Keeps runs that did not succeed; one that is kept already stays as it is."""
        if len(attempts) == 1:
            cursor.execute(self._attempt, attempts[0])
        elif attempts:
            cursor.executemany(self._attempt, attempts)

    def add_resends(self, cursor: psycopg.Cursor[Any], ids: Sequence[str]) -> None:
        """Counts that these ids were sent again and answered."""
        cursor.execute(self._resent, (sorted(set(ids)),))

    def add_letter(self, cursor: psycopg.Cursor[Any], letter: Letter) -> None:
        """Keeps a dead letter; the same message a second time, or conflict, changes nothing."""
        topic, partition, offset, timestamp, key, value, headers, _ = letter.record
        produced = datetime.fromtimestamp(max(0, timestamp) / 1000, UTC)
        cursor.execute(
            self._letter,
            {
                "id": letter.request_id, "reason": letter.reason, "detail": letter.error,
                "topic": topic, "partition": partition, "offset": offset, "produced": produced,
                "key": key, "headers": _jsonb(headers_json(headers)), "payload": value,
            },
        )  # fmt: skip

    def claim(
        self, cursor: psycopg.Cursor[Any], row: Row, was: Stored | None, token: str, lease: float
    ) -> bool:
        """Claims a request with external effects; False where another copy was quicker."""
        fields = {**_fields(row), "token": token, "lease": lease}
        if was is None:
            cursor.execute(self._claim, fields)
        else:
            cursor.execute(
                self._claim_again, {**fields, "was_run": was.run, "was_state": was.state}
            )
        return cursor.rowcount == 1

    def finish_claim(self, cursor: psycopg.Cursor[Any], row: Row, token: str) -> None:
        """Writes the final row of a claim. Raises Overtaken where the token is not the row's."""
        cursor.execute(self._final, {**_fields(row), "token": token})
        if cursor.rowcount != 1:
            raise Overtaken(row.id)


def _id_of(row: Row) -> str:
    return row.id


def _fields(row: Row) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in COLUMNS}
    fields["result"], fields["headers"] = _jsonb(row.result), _jsonb(row.headers)
    return fields
