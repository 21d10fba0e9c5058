"""Requests about the same thing: of those that wait, the newest one runs.

The newest by the producer's time, so that an older one which is sent again late never wins; of
equal times by when the journal first heard of it, and then by its id, here as in all statements. A
row per id stays: what lost is `superseded` and names the winner. Claimed rows are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import sql

from feedback.contract.headers import reply_channel
from feedback.contract.record import Headers
from feedback.contract.states import State
from feedback.contract.times import later
from feedback.journal.rows import readable_headers_of
from feedback.status.status import StatusFields, StatusWrite

Key: TypeAlias = tuple[str, str]
"""(type, reference)"""
_Newness: TypeAlias = tuple[datetime, bool, datetime, str]
_FIRST = datetime.min.replace(tzinfo=UTC)


def _newness(produced_at: datetime, created_at: datetime, id: str) -> _Newness:
    """Of one that has, or had, a row; as the statements compare it."""
    return produced_at, False, created_at, id


class Arrival(NamedTuple):
    """A request that is about to wait."""

    id: str
    key: Key
    produced_at: datetime
    window: float
    """Seconds without a newer one before it runs."""
    window_cap: float
    """Seconds that the first of a row of them may be held back in all."""
    created_at: datetime | None = None
    """When the journal first heard of it; None: just now, later than of all that it knows."""

    @property
    def newness(self) -> _Newness:
        """What tells newer from older. Of those without a row the order of arrival decides."""
        if self.created_at is None:
            return self.produced_at, True, _FIRST, ""
        return _newness(self.produced_at, self.created_at, self.id)


class Waiter(NamedTuple):
    """A row that waits and that nobody has claimed."""

    id: str
    type: str
    coalesce_key: str
    produced_at: datetime
    created_at: datetime
    window_start: datetime
    run: int
    attempt: int
    fingerprint: bytes | None
    own_fingerprint: bool
    status_ttl: int | None
    headers: str | None = None
    """JSON."""

    @property
    def newness(self) -> _Newness:
        """What tells newer from older."""
        return _newness(self.produced_at, self.created_at, self.id)

    def replaced_by(self, winner: str) -> Superseded:
        """The same row with its place taken."""
        return Superseded(
            self.id, self.type, self.run, self.attempt, winner, self.status_ttl,
            readable_headers_of(self.headers),
            fingerprint=None if self.own_fingerprint else self.fingerprint,
        )  # fmt: skip


class Superseded(NamedTuple):
    """A row whose place a newer one has taken."""

    id: str
    type: str
    run: int
    attempt: int
    superseded_by: str
    status_ttl: int | None
    headers: Headers = []  # noqa: RUF012 - nobody writes to it
    """They say who wants to hear of its end."""
    fingerprint: bytes | None = None
    """None also where producers could not compare it."""
    state: State = State.SUPERSEDED
    code: str = State.SUPERSEDED.value

    def status(self, at: datetime) -> StatusFields:
        """What it says since `at`."""
        return StatusFields(
            self.id, self.type, self.state, self.run, code=self.code, attempt=self.attempt, at=at,
            fingerprint=self.fingerprint, superseded_by=self.superseded_by,
        )  # fmt: skip


def superseded_statuses(
    rows: Iterable[Superseded], at: datetime, ttl: int | None = None
) -> list[StatusWrite]:
    """Of rows whose place a newer one has taken; `ttl` where a row says none."""
    return [
        StatusWrite.of(
            row.status(at), ttl=row.status_ttl or ttl, reply_to=reply_channel(row.headers)
        )
        for row in rows
    ]


class Started(NamedTuple):
    """The newest request of a key that was started."""

    id: str
    produced_at: datetime
    created_at: datetime | None
    """None: its row is gone, which counts as the earliest."""

    @property
    def newness(self) -> _Newness:
        """What tells newer from older."""
        return _newness(self.produced_at, self.created_at or _FIRST, self.id)


@dataclass(slots=True)
class CoalescingDecision:
    """What becomes of arrivals and of those that waited before them."""

    due: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """Id of an arrival that waits -> when it may run, and since when its key has waited."""
    superseded: dict[str, str] = field(default_factory=dict)
    """Id of an arrival that lost -> the winner's id."""
    ousted: list[tuple[Waiter, str]] = field(default_factory=list)
    """Rows that lost to an arrival, with its id."""


def judge(
    arrivals: Sequence[Arrival],
    waiters: Iterable[Waiter],
    started: dict[Key, Started],
    now: datetime,
) -> CoalescingDecision:
    """Who waits and who is superseded. Pure. Arrivals stand in their order of arrival."""
    verdict = CoalescingDecision()
    standing = {(w.type, w.coalesce_key): w for w in waiters}
    rivals: dict[Key, list[Arrival]] = {}
    for arrival in arrivals:
        rivals.setdefault(arrival.key, []).append(arrival)
    for key, coming in rivals.items():
        # Of equals max() takes the first one, which is to be the last that arrived.
        winner = max(reversed(coming), key=attrgetter("newness"))
        waiter, begun = standing.get(key), started.get(key)
        best = winner.id
        if begun is not None and begun.newness > winner.newness and begun.id != winner.id:
            best = begun.id
        if waiter is not None and waiter.newness > winner.newness:
            best = waiter.id
        verdict.superseded |= {one.id: best for one in coming if one.id != best}
        if best != winner.id:
            continue
        since = now if waiter is None else min(waiter.window_start, now)
        last = later(since, winner.window_cap)
        due = min(later(now, winner.window), max(now, last))
        verdict.due[winner.id] = (due, since)
        if waiter is not None:
            verdict.ousted.append((waiter, winner.id))
    return verdict


def _columns(arrivals: Sequence[Arrival]) -> list[list[str]]:
    """Types and references."""
    keys = sorted({arrival.key for arrival in arrivals})
    return [[kind for kind, _ in keys], [reference for _, reference in keys]]


class Coalescing:
    """Its statements, for one schema."""

    def __init__(self, schema: str) -> None:
        names = {
            "requests": sql.Identifier(schema, "requests"),
            "coalesced": sql.Identifier(schema, "coalesced"),
            "wanted": sql.SQL(
                "(type, coalesce_key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
            ),
        }
        # Ordered, as two transactions may be after the same ones.
        self._lock = sql.SQL(
            "SELECT pg_advisory_xact_lock(k) FROM (SELECT DISTINCT"
            " hashtextextended(concat_ws(E'\\x1f', {schema}, t, c), 0) AS k"
            " FROM unnest(%s::text[], %s::text[]) AS u(t, c) ORDER BY 1) AS keys"
        ).format(schema=sql.Literal(schema))
        self._lock_rows = sql.SQL(
            "SELECT FROM {requests} WHERE id = ANY (%s::text[] || ARRAY("
            "SELECT id FROM {requests} WHERE state = 'waiting' AND token IS NULL"
            " AND coalesce_key IS NOT NULL AND {wanted})) ORDER BY id FOR UPDATE"
        ).format(**names)
        self._waiters = sql.SQL(
            "SELECT id, type, coalesce_key, produced_at, created_at,"
            " coalesce(window_start, created_at), run, attempt, fingerprint, own_fingerprint,"
            " status_ttl, headers::text FROM {requests}"
            " WHERE state = 'waiting' AND token IS NULL AND {wanted}"
            " ORDER BY id FOR UPDATE"
        ).format(**names)
        self._started = sql.SQL(
            "SELECT type, coalesce_key, request_id, produced_at,"
            " (SELECT n.created_at FROM {requests} n WHERE n.id = c.request_id)"
            " FROM {coalesced} c WHERE {wanted}"
        ).format(**names)
        self._oust = sql.SQL(
            "UPDATE {requests} r SET state = 'superseded', code = 'superseded',"
            " superseded_by = u.winner, due_at = NULL, finished_at = %s"
            " FROM unnest(%s::text[], %s::text[]) AS u(id, winner) WHERE r.id = u.id"
        ).format(**names)

    def lock(
        self, cursor: psycopg.Cursor[Any], arrivals: Sequence[Arrival], own: Sequence[str]
    ) -> None:
        """Has whoever else is about to wait under these references wait for this transaction.

        Without it many that come at once would all write and all but one start over, again and
        again. Then locks the rows that wait under them and the rows of the ids `own`, in the order
        of their ids, as all do that lock several rows.
        """
        columns = _columns(arrivals)
        cursor.execute(self._lock, columns, prepare=False)
        cursor.execute(self._lock_rows, [list(own), *columns], prepare=False)

    def settle(
        self,
        cursor: psycopg.Cursor[Any],
        arrivals: Sequence[Arrival],
        now: datetime,
        ended: datetime,
    ) -> CoalescingDecision:
        """Judges arrivals and marks the rows that lost; the arrivals' own rows are the caller's.

        After `lock`. A UniqueViolation of ``requests_coalescing`` when the winners' rows are
        written means that one came in between that was given back or parked: start over. Windows
        go by `now`, which is by the database's clock; what lost has `ended` by the caller's.
        """
        columns = _columns(arrivals)
        cursor.execute(self._waiters, columns, prepare=False)
        waiters = [Waiter(*row) for row in cursor.fetchall()]
        # After the locks: a claim that held one has said by now what it started.
        cursor.execute(self._started, columns, prepare=False)
        started = {(kind, key): Started(*row) for kind, key, *row in cursor.fetchall()}
        verdict = judge(arrivals, waiters, started, now)
        if verdict.ousted:
            losers = [waiter.id for waiter, _ in verdict.ousted]
            cursor.execute(
                self._oust, [ended, losers, [winner for _, winner in verdict.ousted]], prepare=False
            )
        return verdict
