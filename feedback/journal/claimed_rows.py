"""What a claim returns of rows, and the records that are read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from feedback.contract.envelope import read
from feedback.contract.record import HEADER_SIZE, NOWHERE, Headers, Record
from feedback.contract.states import (
    INSTANCE_DIED,
    MOST_CRASHES,
    MOST_LOST_CLAIMS,
    WORKER_DIED,
    DeadLetterReason,
    State,
)
from feedback.journal.connections import Connection
from feedback.journal.queries import execute
from feedback.journal.rows import HOLD_OPEN, headers_of
from feedback.status.status import StatusFields

_ERROR_LENGTH: Final = 500
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_ROW_ONLY: Final = frozenset({"ce_id", "ce_type"})
"""Headers that the row's columns say."""


class DueRow(NamedTuple):
    """What a claim returns of a row."""

    id: str
    type: str
    topic: str
    produced_at: datetime
    key: bytes | None
    payload: bytes | None
    headers: str | None
    crashes: int
    lost_claims: int
    coalesce_key: str | None
    due: datetime
    created_at: datetime
    transaction: str
    """The id of the one that claims it."""

    @property
    def size(self) -> int:
        """Bytes of its payload and headers, about as the claim counts them."""
        text = self.headers or ""
        return len(self.payload or b"") + len(text) + HEADER_SIZE * text.count("[")


class DoubtfulRow(NamedTuple):
    """A request in doubt whose check is to be asked."""

    id: str
    type: str
    topic: str
    produced_at: datetime
    key: bytes | None
    payload: bytes | None
    headers: str | None


class UnreadableRow(NamedTuple):
    """A row that was due and is `dead` now, as no request can be read from it."""

    id: str
    type: str
    run: int
    attempt: int
    error: str
    fingerprint: bytes | None
    status_ttl: int | None
    """Seconds; None = the default."""
    state: State = State.DEAD
    code: str = DeadLetterReason.MALFORMED.value

    def status(self, at: datetime) -> StatusFields:
        """What it says since `at`."""
        return StatusFields(
            self.id, self.type, self.state, self.run, code=self.code, attempt=self.attempt, at=at,
            fingerprint=self.fingerprint, error=self.error,
        )  # fmt: skip


def read_records(
    connection: Connection,
    rows: Sequence[DueRow],
    order: int,
    values: Mapping[str, Any],
    schema: str,
) -> tuple[dict[str, Record], list[UnreadableRow]]:
    """The records of claimed rows by id, and the rows that hold none, which are dead now.

    Another version, or SQL by hand, may have written anything: one such row must keep no other one
    from being claimed, nor come back for ever.
    """
    records, errors = {}, {}
    for row in rows:
        try:
            records[row.id] = record_of(row, order)
        except Exception as error:  # noqa: BLE001 - whatever cannot be read
            text = f"its row holds no request: {type(error).__name__}: {error}"
            errors[row.id] = text[:_ERROR_LENGTH].replace("\0", "\ufffd")
    if not errors:
        return records, []
    values = {
        **values, "ids": list(errors), "errors": list(errors.values()),
        "code": DeadLetterReason.MALFORMED,
    }  # fmt: skip
    ended = execute(connection, "end_unreadable", schema, values)
    return records, [UnreadableRow(*row) for row in ended]


def record_of(row: DueRow | DoubtfulRow, order: int) -> Record:
    """The record of a row, claimed under an order; whatever is wrong with the row comes out."""
    pairs = claimed_headers(row.id, row.type, row.headers)
    timestamp = (row.produced_at - _EPOCH) // _MILLISECOND
    record = (
        row.topic, NOWHERE, NOWHERE, timestamp, row.key, row.payload, pairs, row.type, order,
    )  # fmt: skip
    read(record)
    return record


def claimed_headers(id: str, type: str, headers: str | None) -> Headers:
    """The headers of the record of a claimed row; `headers`: as its column has them, JSON text.

    `ce_notbefore` was for the first arrival, and is told only where nobody could heed it then.
    """
    given = headers_of(headers)
    left_out = _ROW_ONLY
    if not any(name == HOLD_OPEN for name, _ in given):
        left_out |= {"ce_notbefore"}
    pairs: Headers = [("ce_id", id.encode()), ("ce_type", type.encode())]
    return pairs + [pair for pair in given if pair[0] not in left_out]


def verdict_of(row: DueRow) -> str | None:
    """`worker_died` or `instance_died` where it has ended too many."""
    if row.crashes >= MOST_CRASHES:
        return WORKER_DIED
    return INSTANCE_DIED if row.lost_claims >= MOST_LOST_CLAIMS else None
