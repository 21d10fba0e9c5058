"""Parking: requests that an instance has taken and will not start become waiting rows.

Any instance takes them from there at once. Of ids that have a row already a failed one waits again
where this is its resend: another payload is another request, which has to leave that row alone.
Others are left: whatever such a row says answers the request, or it is in another copy's hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import psycopg

from feedback.contract.counts import Count
from feedback.contract.headers import JSON
from feedback.contract.states import State
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits
from feedback.journal.comparison import Placed, Stored, made_by, same_request
from feedback.journal.connections import Connection, notify_due
from feedback.journal.halving import write_in_halves
from feedback.journal.queries import execute
from feedback.journal.releases import settle

LOCK_TIMEOUT: Final = "100ms"
"""How long a park waits for somebody who is just writing a row of one of its ids."""

_SETTLING: Final = "parking"
"""The token of rows that wait only until those of their references are settled: no instance's."""


class ParkedRequest(NamedTuple):
    """A request as its waiting row keeps it. `headers` is JSON as rows keep them."""

    id: str
    type: str
    topic: str
    partition: int
    offset: int
    produced_at: datetime
    not_before: datetime | None
    run: int
    """Its starts so far, each of which ended with its worker."""
    crashes: int
    """Those of them that its worker died of."""
    key: bytes | None
    reference: str | None
    payload: bytes | None
    headers: bytes
    begun: bool = False
    """Others may have begun it and not ended it."""
    content_type: str = JSON
    """Of its payload."""
    comparable: bool | None = None
    """Whether its type has the fingerprint that producers make; None: nobody here knows it."""
    read_again: bool = False
    """Somebody had its message before."""

    def made(self, row: Placed) -> bool:
        """Whether the row is of this very message, or of a later copy: nobody has sent it again."""
        return made_by(row, (self.topic, self.partition, self.offset), again=self.read_again)

    def is_same(self, stored: Stored) -> bool | None:
        """Whether it is what stands under its id; None: that cannot be said here."""
        kind, payload, content_type = self.type, self.payload, self.content_type
        return same_request(stored, kind, payload, content_type, comparable=self.comparable)


class _FailedRow(NamedTuple):
    """A row that was locked, as it is compared with a message of its id."""

    id: str
    type: str
    fingerprint: bytes | None
    own_fingerprint: bool
    payload: bytes | None
    headers: str | None
    topic: str
    partition: int
    kafka_offset: int


class ParkResult(NamedTuple):
    """What a park did; of one that failed, what it may have done."""

    runs: dict[str, int]
    """Ids that wait now by it, with their run numbers."""
    superseded: list[Superseded]
    """Failed ones that were sent again and older ones that gave way to another of a reference."""


def park(
    connection: Connection,
    parcels: Sequence[ParkedRequest],
    code: str,
    *,
    schema: str,
    results: bool = False,
    result: ParkResult | None = None,
    commits: Commits[Superseded | Count] | None = None,
) -> ParkResult:
    """Writes waiting rows, and lets failed ones wait that were sent again. Each id may come once.

    Failed ones of which a message cannot be said to be the same request are left as they are.

    What another copy of a request holds up is tried in halves, and left in the end: that copy runs.
    So is one that the database refuses: it is no neighbour's fault. Raises psycopg.Error where the
    database is away: `result`, where it is given, has what may have been written until then.
    `results`: what is superseded on the way gets a result record; `commits` hears of it,
    and how to count what waits now.
    """
    result = ParkResult({}, []) if result is None else result
    tried: list[ParkResult] = []

    def write(some: Sequence[ParkedRequest]) -> ParkResult:
        tried.clear()
        tried.append(_write(connection, some, code, schema, results=results))
        return tried[0]

    def landed(done: ParkResult) -> None:
        result.runs.update(done.runs)
        result.superseded.extend(done.superseded)

    def halves(some: Sequence[ParkedRequest]) -> list[tuple[ParkedRequest, psycopg.Error]]:
        return write_in_halves(connection, some, write, landed, commits=commits, facts_of=facts)

    facts = partial(_facts_of, {parcel.id: parcel.type for parcel in parcels}, code)
    try:
        refused = halves(parcels)
        # A newer one of its reference came between two statements: now it is seen.
        halves([p for p, error in refused if isinstance(error, psycopg.errors.UniqueViolation)])
    except psycopg.Error:
        for perhaps in tried:  # the last one, whose COMMIT was perhaps not answered
            landed(perhaps)
        raise
    return result


def _write(
    connection: Connection,
    parcels: Sequence[ParkedRequest],
    code: str,
    schema: str,
    *,
    results: bool,
) -> ParkResult:
    """In the caller's transaction."""
    connection.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
    gone, revived = _revive(connection, parcels, code, schema, results=results)
    values = {**columns_of(parcels), "code": code}
    new = dict(execute(connection, "park", schema, values).fetchall())
    if revived or new:
        notify_due(connection, schema=schema)
    return ParkResult(revived | new, gone)


def _facts_of(types: Mapping[str, str], code: str, done: ParkResult) -> list[Superseded | Count]:
    return [*done.superseded, *(Count(types[one], State.WAITING, code) for one in done.runs)]


def _revive(
    connection: Connection,
    parcels: Sequence[ParkedRequest],
    code: str,
    schema: str,
    *,
    results: bool,
) -> tuple[list[Superseded], dict[str, int]]:
    ids = [parcel.id for parcel in parcels]
    rows = map(_FailedRow._make, execute(connection, "lock_failed", schema, {"ids": ids}))
    locked = {row.id: row for row in rows}
    failed = [
        p
        for p in parcels
        if (row := locked.get(p.id)) is not None and not p.made(row) and p.is_same(row)
    ]
    if not failed:
        return [], {}
    values = {**columns_of(failed), "code": code, "token": _SETTLING}
    revived = execute(connection, "revive", schema, values).fetchall()
    coalescing = [request_id for request_id, _, coalesces in revived if coalesces]
    superseded = settle(connection, coalescing, _SETTLING, schema=schema, results=results)
    gone = {row.id for row in superseded}
    return superseded, {request_id: run for request_id, run, _ in revived if request_id not in gone}


def columns_of(parcels: Sequence[ParkedRequest]) -> dict[str, list[Any]]:
    """The values of the statements, a list a column."""
    return {
        "ids": [p.id for p in parcels],
        "types": [p.type for p in parcels],
        "topics": [p.topic for p in parcels],
        "partitions": [p.partition for p in parcels],
        "offsets": [p.offset for p in parcels],
        "produced": [p.produced_at for p in parcels],
        "not_before": [p.not_before for p in parcels],
        "runs": [p.run for p in parcels],
        "crashes": [p.crashes for p in parcels],
        "keys": [p.key for p in parcels],
        "references": [p.reference for p in parcels],
        "payloads": [p.payload for p in parcels],
        "headers": [p.headers.decode() for p in parcels],
        "begun": [p.begun for p in parcels],
    }
