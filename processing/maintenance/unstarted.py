"""What becomes of messages that this instance took and will not start. Pure.

Where the journal can be reached they are parked: waiting rows, which any instance takes. Else they
are refused: told to come again, as nothing of them is in the journal, so that the run number is the
store's to raise (`bump`). What nobody sends again (no valid request, or one that only a decoder can
read) becomes a dead letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from feedback.backend import Backend
from feedback.contract.cloudevents import is_structured, unfold
from feedback.contract.counts import Count
from feedback.contract.envelope import Envelope, read
from feedback.contract.headers import reply_channel
from feedback.contract.lost_starts import lost_reason
from feedback.contract.record import (
    HEADERS,
    TOPIC,
    VALUE,
    Record,
    is_read_again,
    may_have_begun,
    perhaps_done,
    place_text,
)
from feedback.contract.states import (
    DATABASE_UNAVAILABLE,
    SHUTDOWN,
    WORKER_DIED,
    DeadLetterReason,
    State,
)
from feedback.contract.times import moment
from feedback.errors import Malformed
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.parking import ParkedRequest
from feedback.journal.rows import StoredRequest, headers_json
from feedback.status.status import StatusFields, StatusWrite

# Of a message, not of its request: what became of earlier ones with its id nobody could look up.
_REFUSED = {
    DATABASE_UNAVAILABLE: "the database is not reachable: this message was not run, or what it did"
    " was undone, though an earlier one with its id may have run; send the same again",
    SHUTDOWN: "the consumer stopped before this message was run, though an earlier one with its id"
    " may have been; send the same again",
}
_NOT_KEPT = (
    "its type is paused or limited, and this message could not be kept until its turn: it was not"
    " run, though an earlier one with its id may have been; send the same again"
)
_STOPPED = "the consumer stopped before it was this request's turn; another one runs it"
_LIMITED = (
    "it was not this request's turn: its type is paused or limited, or one before it waits for the"
    " database; it runs when it is"
)
_ANOTHER = "another one runs it"
_ITS_TURN = "its type is paused or limited; it runs when it is its turn"
_PERHAPS = "the consumer stopped when it may have been begun"


class UnstartedRecords(NamedTuple):
    """Records of the main process that will not start here."""

    number: int
    code: str
    records: list[Record]
    decoded: list[str]
    """Topics whose messages only user code can read."""
    lost: list[tuple[int, int]]
    """Of suspects, how many starts each had, and how many of them crashed; else empty."""
    backends: list[Backend]
    """Of suspects, the dead workers' database backends, which must be gone first."""
    limited: bool = False
    """For the limits of their types; else because this instance stops."""
    pure_once: Collection[str] = ()
    """Types that leave no row when they are done, and must not be run again by themselves."""
    comparable: Mapping[str, bool] = {}
    """Type of the app -> whether producers can make its fingerprint."""
    losses: int = 0
    """Connections that were lost in a row while these were parked."""
    unclear: bool = False
    """They may have been parked by a COMMIT that got no answer."""

    @property
    def to_be_kept(self) -> bool:
        """These may have been parked, for their limits: never to be refused.

        If one has a row any instance runs it, and if it has none nobody would.
        """
        return self.limited and bool(self.lost)

    def only(self, indices: Sequence[int]) -> UnstartedRecords:
        """Those of its records, as a part of the same number."""
        lost = [self.lost[n] for n in indices] if self.lost else []
        return self._replace(records=[self.records[n] for n in indices], lost=lost)


@dataclass(slots=True)
class Refused:
    """What is to be done about some messages."""

    writes: list[StatusWrite] = field(default_factory=list)
    counts: Counter[Count] = field(default_factory=Counter)
    """Requests that were answered so."""
    letters: list[DeadLetter] = field(default_factory=list)
    """Messages that cannot become a request, or that only a decoder can read."""


def refusals(
    records: Sequence[Record],
    code: str,
    at: datetime,
    ttl: int,
    decoded: Collection[str] = (),
    *,
    limited: bool = False,
) -> Refused:
    """Sorts messages; those of the topics `decoded` only their decoder can read.

    `limited`: they would have waited for the limits of their types.
    """
    reason = _NOT_KEPT if limited else _REFUSED.get(code)
    result = Refused()
    for record in records:
        if record[TOPIC] in decoded:
            left = "perhaps in the middle of its run" if may_have_begun(record) else "undecoded"
            why = f"it was {left} when the consumer gave it up ({code}): only its decoder reads it"
            result.letters.append(DeadLetter(None, DeadLetterReason.MALFORMED, why, record))
            continue
        try:
            envelope = read(record)
        except Malformed as error:
            letter = DeadLetter(error.id, DeadLetterReason.MALFORMED, str(error), record)
            result.letters.append(letter)
            result.writes += letter.failed_status(at, ttl=ttl)
            continue
        status = StatusFields(
            envelope.id, envelope.type, State.FAILED, 1, code=code, attempt=1, at=at,
            reason=reason,
        )  # fmt: skip
        reply_to = envelope.reply_to
        result.writes.append(StatusWrite.of(status, ttl=ttl, bump=True, reply_to=reply_to))
        result.counts[Count(envelope.type, State.FAILED, code)] += 1
    return result


@dataclass(slots=True)
class Parking:
    """What is to be done about some records."""

    parcels: list[ParkedRequest] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    """Id -> the record of its parcel."""
    rest: list[Record] = field(default_factory=list)
    """Records that are dead letters."""
    repeated: list[int] = field(default_factory=list)
    """Indices of further messages of an id."""


def parking(part: UnstartedRecords) -> Parking:
    """Sorts records. What is read again of a type of `pure_once` counts as begun."""
    result = Parking()
    lost = part.lost or [(0, 0)] * len(part.records)
    for index, (record, starts) in enumerate(zip(part.records, lost, strict=True)):
        try:
            envelope = None if record[TOPIC] in part.decoded else read(record)
        except Malformed:
            envelope = None
        if envelope is None:
            result.rest.append(record)
        elif envelope.id in result.records:
            result.repeated.append(index)
        else:
            result.records[envelope.id] = record
            result.parcels.append(_parcel(record, envelope, *starts, part))
    return result


def names_of(records: Iterable[Record]) -> list[str]:
    """What these are called in a log line: their ids, else their places."""
    return [
        (dict(record[HEADERS] or ()).get("ce_id") or b"").decode(errors="replace")
        or place_text(record)
        for record in records
    ]


def perhaps_parked(part: UnstartedRecords, ids: Collection[str]) -> list[UnstartedRecords]:
    """A part whose park broke off, which may have written these ids, as what is left of it.

    What may have been written is apart from the rest, and not to be refused, as any instance may
    run it: as of suspects nothing is said of it but what its row says.
    """
    if not ids:
        return [part]
    records = parking(part).records
    written = {id(record) for name, record in records.items() if name in ids}
    if part.lost:
        # Suspects, of which nothing is said anyway, and what waited behind them.
        again = [perhaps_done(r) if id(r) in written else r for r in part.records]
        return [part._replace(records=again, unclear=True)]
    again = [perhaps_done(r) for r in part.records if id(r) in written]
    rest = [r for r in part.records if id(r) not in written]
    parts = []
    if again:
        parts = [part._replace(records=again, lost=[(0, 0)] * len(again), unclear=True)]
    return parts + ([part._replace(records=rest)] if rest else [])


def parked_statuses(
    parcels: Iterable[ParkedRequest], records: dict[str, Record], part: UnstartedRecords,
    at: datetime, ttl: int,
) -> list[StatusWrite]:  # fmt: skip
    """`waiting` for those of the part that have a row now."""
    lost = {id(record): starts for record, starts in zip(part.records, part.lost, strict=False)}
    writes = []
    for parcel in parcels:
        due = parcel.not_before if parcel.not_before and parcel.not_before > at else at
        record = records[parcel.id]
        reply_to = reply_channel(record[HEADERS])
        status = StatusFields(
            parcel.id, parcel.type, State.WAITING, parcel.run, code=part.code, attempt=1, at=at,
            reason=_why_parked(record, lost.get(id(record)), part), retry_at=due,
        )  # fmt: skip
        writes.append(StatusWrite.of(status, ttl=ttl, reply_to=reply_to))
    return writes


def _why_parked(record: Record, lost: tuple[int, int] | None, part: UnstartedRecords) -> str:
    """`lost`: of a suspect, its starts, and how many of them crashed."""
    then = _ITS_TURN if part.limited else _ANOTHER
    starts, crashes = lost or (0, 0)
    if starts:
        # The last one is no crash where it was killed as its time was over.
        return f"{lost_reason(SHUTDOWN if crashes < starts else WORKER_DIED)}; {then}"
    if lost is not None and may_have_begun(record):
        return f"{_PERHAPS}; {then}"
    return _LIMITED if part.limited else _STOPPED


def stored_statuses(
    rows: Mapping[str, StoredRequest],
    records: Mapping[str, Record],
    comparable: Mapping[str, bool],
    ttl: int,
) -> list[StatusWrite]:
    """What the rows of these ids say, for who sent the records; `comparable` as of their part."""
    return [
        row.told(
            row.at, ttl, reply_channel(records[name][HEADERS]),
            tell_fingerprint=comparable.get(row.type) is not False,
        )
        for name, row in rows.items()
    ]  # fmt: skip


def _parcel(
    record: Record, envelope: Envelope, run: int, crashes: int, part: UnstartedRecords
) -> ParkedRequest:
    e, due, pairs = envelope, envelope.options.not_before, record[HEADERS] or []
    unsure = is_read_again if e.type in part.pure_once else may_have_begun
    if is_structured(dict(pairs).get("content-type")):
        pairs = list(unfold(dict(pairs), record[VALUE])[0].items())
    return ParkedRequest(
        e.id, e.type, e.topic, e.partition, e.offset, moment(e.exact_time),
        None if due is None else moment(due), run, crashes, e.key,
        e.options.reference, e.payload, headers_json(pairs), unsure(record),
        e.options.content_type, part.comparable.get(e.type), is_read_again(record),
    )  # fmt: skip
