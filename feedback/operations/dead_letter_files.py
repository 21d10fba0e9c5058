"""Dead letters as JSON Lines: what a line says, and how lines are written and read.

One JSON object a line, under the names of the columns, `kind` first; key, payload, fingerprint and
the values of headers in base64. A line of kind `request` holds its timeline under `attempts`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import orjson
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from feedback.contract.states import DeadLetterReason
from feedback.contract.times import EARLIEST, LATEST
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.dead_letters import DeadLetterRef
from feedback.operations.request_reads import Row

AT_ONCE: Final = 100  # entries that are in memory together
_BYTES: Final = ("key", "payload", "fingerprint")


def _from_base64(value: object) -> object:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("this is not base64") from None
    if value is not None:
        raise ValueError("this is not base64 text")
    return value


def _within(value: datetime) -> datetime:
    if not EARLIEST <= value <= LATEST:
        raise ValueError(f"a time lies between {EARLIEST:%Y-%m-%d} and {LATEST:%Y-%m-%d}")
    return value


Time: TypeAlias = Annotated[AwareDatetime, Field(strict=False), AfterValidator(_within)]
"""One that is read again in any time zone: one that is not would stop whatever reads its row."""
Base64: TypeAlias = Annotated[bytes | None, BeforeValidator(_from_base64)]
Text: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Name: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**30)]
"""With room to count on: one row that is at the end of its column would stop all claims."""
Offset: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Headers: TypeAlias = list[tuple[Text, Base64]] | None


class _Line(BaseModel, strict=True):
    topic: Text
    partition: Annotated[int, Field(ge=-1, lt=2**31)]
    kafka_offset: Offset
    produced_at: Time
    key: Base64 = None
    headers: Headers = None
    payload: Base64 = None


class MessageLine(_Line):
    """A message that could not become a request."""

    kind: Literal["message"]
    request_id: Name | None = None
    reason: Annotated[DeadLetterReason, Field(strict=False)]
    detail: Text | None = None
    at: Time


class AttemptLine(BaseModel, strict=True):
    """A run that did not succeed."""

    run: Count
    code: Text
    error: Text | None = None
    started_at: Time
    ended_at: Time
    traceback: Text | None = None


class RequestLine(_Line):
    """A dead request."""

    kind: Literal["request"]
    id: Name
    type: Name
    code: Text
    attempt: Count = 1
    run: Count = 1
    used: Count = 0
    crashes: Count = 0
    resends: Count = 0
    effect: Literal["transaction", "external", "none"]
    fingerprint: Base64 = None
    own_fingerprint: bool = False
    status_ttl: Count | None = None
    error: Text | None = None
    reason: Text | None = None
    reference: Text | None = None
    coalesce_key: Text | None = None
    asked_by: Name | None = None
    created_at: Time
    finished_at: Time
    attempts: list[AttemptLine] = []


Line: TypeAlias = MessageLine | RequestLine
_LINE: Final[TypeAdapter[Line]] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


_IN_WORDS: Final = {
    "dict_type": "this is no JSON object, as a line of an export is",
    "union_tag_not_found": "kind is missing: message or request",
    "union_tag_invalid": "kind has to be message or request",
    "missing": "Field required: the line is not whole, or no line of an export",
    "string_pattern_mismatch": "it holds a character that has no place in it (control characters)",
}
"""Kinds of error, by pydantic's names, of which pydantic speaks in words of its own."""


class BrokenLine(NamedTuple):
    """A line that is no dead letter: its number, from 1, and what is wrong."""

    number: int
    reason: str


class Imported(NamedTuple):
    """How many entries were added, how many were there already, and the broken lines."""

    added: int
    there: int
    broken: list[BrokenLine]


def export_lines(
    connection: Connection, places: Sequence[DeadLetterRef], *, schema: str
) -> Iterator[bytes]:
    """A line, with its end, for each entry that is still there."""
    for _, lines in export_parts(connection, places, schema=schema):
        yield from lines


def export_parts(
    connection: Connection, places: Sequence[DeadLetterRef], *, schema: str
) -> Iterator[tuple[Sequence[DeadLetterRef], list[bytes]]]:
    """The same part by part: some of the entries, and all lines of them."""
    for start in range(0, len(places), AT_ONCE):
        part, lines = places[start : start + AT_ONCE], list[bytes]()
        numbers = [int(place.name) for place in part if place.kind == "message"]
        ids = [place.name for place in part if place.kind == "request"]
        for name, keys in (("letters", numbers), ("dead_requests", ids)):
            if not keys:
                continue
            with connection.cursor(row_factory=dict_row) as cursor:
                rows = cursor.execute(query(name, schema), [keys]).fetchall()
            lines += [_written(row) for row in rows if row.get("retried_at") is None]
        yield part, lines


def identity(line: bytes) -> DeadLetterRef | None:
    """Which entry a line of an export is; None where it is none."""
    try:
        row = _LINE.validate_json(line)
    except ValidationError:
        return None
    if isinstance(row, RequestLine):
        return DeadLetterRef("request", row.id, row.finished_at)
    # Its number is not part of what is imported.
    number = orjson.loads(line).get("id")
    return DeadLetterRef("message", str(number), row.at)


def import_lines(
    connection: Connection, lines: Iterable[bytes], *, schema: str
) -> Iterator[Imported]:
    """Adds what the journal does not have, batch by batch; yields what each batch was.

    A message that was retried and a request whose id the journal knows are there already.
    """
    batch: list[tuple[int, Line]] = []
    broken: list[BrokenLine] = []
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            batch.append((number, _LINE.validate_json(text)))
        except ValidationError as error:
            broken.append(BrokenLine(number, _explained(error)))
        if len(batch) + len(broken) >= AT_ONCE:
            yield _add(connection, batch, broken, schema)
            batch, broken = [], []
    yield _add(connection, batch, broken, schema)


def _add(
    connection: Connection, batch: list[tuple[int, Line]], broken: list[BrokenLine], schema: str
) -> Imported:
    try:
        with connection.transaction():
            added = sum(_insert(connection, line, schema) for _, line in batch)
        return Imported(added, len(batch) - added, broken)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        if len(batch) == 1:
            reason = str(error).strip().splitlines()[0]
            return Imported(
                0, 0, [*broken, BrokenLine(batch[0][0], f"PostgreSQL refused it: {reason}")]
            )
    # One of them can't be stored: the others can, one by one.
    parts = [_add(connection, [one], [], schema) for one in batch]
    more = [problem for part in parts for problem in part.broken]
    return Imported(
        sum(part.added for part in parts),
        sum(part.there for part in parts),
        sorted([*broken, *more]),
    )


def _insert(connection: Connection, line: Line, schema: str) -> int:
    values = line.model_dump()
    headers = values["headers"]
    values["headers"] = None if headers is None else Jsonb([_pair(*pair) for pair in headers])
    if isinstance(line, RequestLine):
        attempts = [attempt.model_dump(mode="json") for attempt in line.attempts]
        values["attempts"] = Jsonb(attempts)
    name = f"import_{'letter' if line.kind == 'message' else 'request'}"
    return max(0, connection.execute(query(name, schema), values).rowcount)


def _pair(name: str, value: bytes | None) -> list[str | None]:
    return [name, None if value is None else base64.b64encode(value).decode()]


def _written(row: Row) -> bytes:
    line = {name: value for name, value in row.items() if not name.startswith("retried_")}
    for name in _BYTES:
        if line.get(name) is not None:
            line[name] = base64.b64encode(line[name]).decode()
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "it has to be", 1)


def _explained(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first: Any = error.errors(include_url=False, include_input=False)[0]
    # What comes first is the kind by which the line was taken.
    place = ".".join(str(part) for part in first["loc"][1:])
    text = _IN_WORDS.get(first["type"]) or _plain(first["msg"])
    return f"{place}: {text}" if place else text
