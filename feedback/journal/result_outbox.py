"""Result records: what other systems learn of a request that is settled, and their way there.

A record is written in the transaction that settles its request, waits in table `results`, and is
deleted once the results topic has it: it may arrive twice, and is never lost.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import psycopg
from psycopg import sql

from feedback.contract.record import Headers
from feedback.contract.states import SETTLED

MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of results that are taken at once, and one result more."""
_ADD: Final = (
    "INSERT INTO {results} (request_id, type, state, code, result)"
    " SELECT i, t, s, c, r::jsonb"
    " FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) AS u(i, t, s, c, r)"
)
_LOCK: Final = (
    "SELECT id, coalesce(pg_column_size(result), 0) FROM {results} WHERE id > %s"
    " ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"
)
_READ: Final = (
    "SELECT id, at, request_id, type, state, code, result::text FROM {results}"
    " WHERE id = ANY(%s) ORDER BY id"
)
_AT_ONCE: Final = 64 * 1024
"""Bytes of results, as they are stored, that one statement reads: as text they may have a thousand
times as many, and whoever asks for all that wait at once gets none of them in time."""
_REMOVE: Final = "DELETE FROM {results} WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """How a request ended. `result` is JSON as the handler's was encoded, None where none is."""

    request_id: str
    type: str
    state: str
    code: str
    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A record that waits in the journal under `number`, since `at` (UTC)."""

    number: int
    at: datetime
    record: ResultRecord


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """A record as it is sent: keyed by the request's id, so that those of one keep together."""

    key: bytes
    value: bytes
    headers: Headers


def add_results(cursor: psycopg.Cursor[Any], schema: str, records: Iterable[ResultRecord]) -> int:
    """Writes the records of settled requests in the cursor's transaction; how many they were.

    Those in other states (`waiting`, `running`) are left out, so that a caller may hand over
    whatever its requests came to.
    """
    settled = [record for record in records if record.state in SETTLED]
    if settled:
        cursor.execute(
            _text(_ADD, schema),
            [
                [r.request_id for r in settled],
                [r.type for r in settled],
                [str(r.state) for r in settled],
                [r.code for r in settled],
                [None if r.result is None else r.result.decode() for r in settled],
            ],
        )
    return len(settled)


def take_results(
    cursor: psycopg.Cursor[Any],
    schema: str,
    limit: int,
    most_bytes: int = MOST_BYTES,
    *,
    after: int = 0,
) -> list[StoredResult]:
    """The oldest records, at most `limit`, locked until the transaction ends.

    Those with numbers above `after`.

    Their results have at most `most_bytes`, and the last one what is more. Others that take at the
    same time get other records.
    """
    locked = cursor.execute(_text(_LOCK, schema), [after, limit]).fetchall()
    taken: list[StoredResult] = []
    size = 0
    for numbers in _portions(locked):
        for row in cursor.execute(_text(_READ, schema), [numbers]).fetchall():
            if size >= most_bytes:
                return taken
            stored = _stored(*row)
            size += len(stored.record.result or b"")
            taken.append(stored)
    return taken


def _portions(locked: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Numbers of records that are read together, of (number, bytes as stored)."""
    portion: list[int] = []
    size = 0
    for number, stored in locked:
        if portion and size + stored > _AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(number)
        size += stored
    if portion:
        yield portion


def _stored(
    number: int, at: datetime, request_id: str, kind: str, state: str, code: str, text: str | None
) -> StoredResult:
    result = None if text is None else text.encode()
    record = ResultRecord(request_id, kind, state, code, result)
    return StoredResult(number, at.astimezone(UTC), record)


def remove_results(cursor: psycopg.Cursor[Any], schema: str, numbers: Sequence[int]) -> None:
    """Deletes records that were delivered."""
    cursor.execute(_text(_REMOVE, schema), [list(numbers)])


def result_message(stored: StoredResult, *, omit_result: bool = False) -> ResultMessage:
    """The message of a record; without its result, and saying so, where no broker would take it."""
    record = stored.record
    fields: dict[str, Any] = {
        "id": record.request_id,
        "type": record.type,
        "state": record.state,
        "code": record.code,
    }
    if omit_result:
        fields["result_omitted"] = True
    elif record.result is not None:
        fields["result"] = orjson.Fragment(record.result)
    fields["at"] = stored.at
    key = record.request_id.encode()
    return ResultMessage(
        key=key,
        value=orjson.dumps(fields, option=orjson.OPT_UTC_Z),
        headers=[
            ("ce_id", key),
            ("ce_type", record.type.encode()),
            ("content-type", b"application/json"),
        ],
    )


@functools.cache
def _text(template: str, schema: str) -> str:
    """As text, not sql.Composed: psycopg caches what it makes of a text."""
    return template.replace("{results}", sql.Identifier(schema, "results").as_string(None))
