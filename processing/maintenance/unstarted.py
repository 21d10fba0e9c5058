"""Waiting rows of requests that this instance has taken and will not start, and their statuses.

Pure. Messages that cannot become a request, or that only a decoder can read, are dead letters, as
when they are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from feedback.contract.cloudevents import is_structured, unfold
from feedback.contract.envelope import Envelope, read
from feedback.contract.headers import reply_channel
from feedback.contract.record import HEADERS, TOPIC, VALUE, Record
from feedback.contract.states import State
from feedback.errors import Malformed
from feedback.journal.coalescing import Superseded
from feedback.journal.parking import ParkedRequest
from feedback.journal.rows import headers_json
from feedback.status.store import StatusWrite
from feedback.status.writes import row_status, status_write

REASON = "the consumer stopped before it was this request's turn; another one runs it"


@dataclass(slots=True)
class Parking:
    """What is to be done about some records."""

    parcels: list[ParkedRequest] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    """Id -> the record of its parcel."""
    rest: list[Record] = field(default_factory=list)
    """Records that are dead letters, or a second message of an id."""


def parking(
    records: Sequence[Record], lost: Sequence[tuple[int, int]], decoded: Collection[str] = ()
) -> Parking:
    """Sorts records; of suspects `lost` says how many starts each had, and how many crashed."""
    result = Parking()
    for record, starts in zip(records, lost or [(0, 0)] * len(records), strict=True):
        try:
            envelope = None if record[TOPIC] in decoded else read(record)
        except Malformed:
            envelope = None
        if envelope is None or envelope.id in result.records:
            result.rest.append(record)
            continue
        result.records[envelope.id] = record
        result.parcels.append(_parcel(record, envelope, *starts))
    return result


def parked_statuses(
    parcels: Iterable[ParkedRequest], records: dict[str, Record], code: str, at: datetime, ttl: int
) -> list[StatusWrite]:
    """`waiting` for those that have a row now."""
    writes = []
    for parcel in parcels:
        due = parcel.not_before if parcel.not_before and parcel.not_before > at else at
        reply_to = reply_channel(records[parcel.id][HEADERS])
        writes.append(
            status_write(
                parcel.id, parcel.type, State.WAITING, parcel.run, code=code, attempt=1, at=at,
                reason=REASON, retry_at=due, ttl=ttl, reply_to=reply_to,
            )
        )  # fmt: skip
    return writes


def superseded_statuses(rows: Iterable[Superseded], at: datetime, ttl: int) -> list[StatusWrite]:
    """Of rows whose place a newer one has taken."""
    return [
        row_status(row, at, ttl=row.status_ttl or ttl, reply_to=reply_channel(row.headers))
        for row in rows
    ]


def _parcel(record: Record, envelope: Envelope, run: int, crashes: int) -> ParkedRequest:
    e, pairs = envelope, record[HEADERS] or []
    if is_structured(dict(pairs).get("content-type")):
        pairs = list(unfold(dict(pairs), record[VALUE])[0].items())
    return ParkedRequest(
        e.id, e.type, e.topic, e.partition, e.offset, _utc(max(0.0, e.time)),
        None if e.not_before is None else _utc(e.not_before), run, crashes, e.key,
        e.reference, e.payload, headers_json(pairs),
    )  # fmt: skip


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
