"""Work on the waiting queue: claims, renewals, what is given back or parked.

The thread that takes frames says what is to be done; the database thread does it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import errors

from feedback.contract.counts import AnyCounts, Count
from feedback.contract.record import Record, claim_of
from feedback.contract.states import DUPLICATE, State
from feedback.journal import claims as due
from feedback.journal.claims import LOCK_BRIEFLY, ClaimRequest
from feedback.journal.coalescing import Superseded
from feedback.journal.parking import end_backends, park
from feedback.journal.writer import JournalWriter
from feedback.status.store import StatusWrite
from feedback.status.writes import row_status
from processing.ipc.frames import DueRows, Frame, PartAnswered
from processing.maintenance.claim_timing import ClaimTiming
from processing.maintenance.unstarted import parked_statuses, parking, superseded_statuses
from processing.settings import MaintenanceSettings

Connection = psycopg.Connection[Any]


class UnstartedRecords(NamedTuple):
    """Records of the main process that will not start here."""

    number: int
    code: str
    records: list[Record]
    decoded: list[str]
    """Topics whose messages only user code can read."""
    lost: list[tuple[int, int]]
    """Of suspects, how many starts each had, and how many of them crashed; else empty."""
    backends: list[tuple[int, str]]
    """Of suspects, the dead workers' database backends, which must be gone first."""


class Claimer:
    """What is to be done about due rows."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        tell: Callable[[Frame], None],
        publish: Callable[[Sequence[StatusWrite]], None],
        count: Callable[[AnyCounts], None],
        refuse: Callable[[UnstartedRecords], None],
    ) -> None:
        """`refuse` answers for records that can't be parked."""
        self._settings = settings
        self._tell = tell
        self._publish = publish
        self._count = count
        self._refuse = refuse
        self._after = ""
        """The type where the last claim left off: the database thread alone knows."""
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._refill = ClaimTiming(settings.claim_pause)
        self._renewal: list[tuple[str, int]] = []
        self._held: list[str] = []
        self._releases: dict[tuple[str, int], None] = {}
        self._backends: list[tuple[int, str]] = []
        self._parts: deque[UnstartedRecords] = deque()

    # Said by the thread that takes frames

    def want(self, want: ClaimRequest) -> None:
        """The main process wants rows."""
        with self._lock:
            self._refill.wanted(want, time.monotonic())

    def wake(self, seconds: float = 0.0) -> None:
        """A row is due in so many seconds."""
        with self._lock:
            self._refill.woken(time.monotonic(), seconds)

    def renew(self, pairs: list[tuple[str, int]]) -> None:
        """These claims are in hand."""
        with self._lock:
            self._renewal = pairs

    def hold(self, tokens: list[str]) -> None:
        """Chunks with these tokens are in hand: calls outside that they made may still run."""
        with self._lock:
            self._held = tokens

    def release(
        self, pairs: list[tuple[str, int]], backends: Sequence[tuple[int, str]] = ()
    ) -> None:
        """These claims are given back, as soon as the database can be reached.

        `backends`: of workers that died with some of them, to be gone before.
        """
        with self._lock:
            self._backends += backends
            self._releases.update(dict.fromkeys(pairs))

    def park(self, part: UnstartedRecords) -> None:
        """These records are to wait for another instance."""
        with self._lock:
            self._parts.append(part)

    def stop(self) -> None:
        """Nothing more is claimed."""
        with self._lock:
            self._refill.stop()

    # Done by the database thread

    def pause(self, now: float) -> float | None:
        """Seconds until there is something to do; None while nothing is wanted."""
        with self._lock:
            if self._renewal or self._held or self._releases or self._parts:
                return 0.0
            return self._refill.pause(now)

    def work(self, connection: Connection) -> None:
        """Does what there is to do. Raises psycopg.Error where the database is away."""
        self._give_up_claims(connection)
        self._claim(connection)

    def finish(self, connection: Connection) -> None:
        """Does what must not be left at the end."""
        self._give_up_claims(connection)

    def refuse_parts(self) -> None:
        """The database is away: records that wait to be parked are refused instead."""
        while (part := self._next_part()) is not None:
            self._give_up(part)

    def _give_up_claims(self, connection: Connection) -> None:
        settings = self._settings
        with self._lock:
            renewal, self._renewal = self._renewal, []
            held, self._held = self._held, []
            releases, backends = list(self._releases), self._backends.copy()
        if releases:
            end_backends(connection, backends)
            lost = due.release(
                connection, settings.instance, releases,
                schema=settings.schema, results=bool(settings.results_topic),
            )  # fmt: skip
            with self._lock:
                for pair in releases:
                    self._releases.pop(pair, None)
                del self._backends[: len(backends)]
            self._tell_superseded(lost)
        given_back = set(releases)
        pairs = [pair for pair in renewal if pair not in given_back]
        due.renew(connection, settings.instance, pairs, schema=settings.schema)
        due.hold(connection, held, settings.lease, schema=settings.schema)
        while (part := self._next_part()) is not None:
            try:
                self._park(connection, part)
            except psycopg.Error:
                self._give_up(part)
                raise

    def _claim(self, connection: Connection) -> None:
        settings = self._settings
        with self._lock:
            want = self._refill.tick(time.monotonic())
        if want is None:
            return
        try:
            haul = due.claim(
                connection, settings.instance, want,
                schema=settings.schema, results=bool(settings.results_topic), after=self._after,
            )  # fmt: skip
        except BaseException:
            with self._lock:
                self._refill.failed(time.monotonic())
            raise
        self._after = haul.after
        with self._lock:
            wanted = self._refill.claimed(len(haul.rows), haul.due_in, time.monotonic())
        self._tell_superseded(haul.superseded)
        if not wanted:
            self.release([claim_of(row.record) for row in haul.rows])
        elif haul.rows:
            self._tell(DueRows(want.order, [(row.record, row.verdict) for row in haul.rows]))

    def _park(self, connection: Connection, part: UnstartedRecords) -> None:
        settings = self._settings
        end_backends(connection, part.backends)
        found = parking(part.records, part.lost, part.decoded)
        parked = park(
            connection, found.parcels, part.code,
            schema=settings.schema, results=bool(settings.results_topic),
        )  # fmt: skip
        runs = parked.runs
        mine = [p._replace(run=runs[p.id]) for p in found.parcels if p.id in runs]
        now = datetime.now(UTC)
        self._publish(parked_statuses(mine, found.records, part.code, now, settings.status_ttl))
        self._count(Counter(Count(parcel.type, State.WAITING, part.code) for parcel in mine))
        self._tell_superseded(parked.superseded)
        settled = runs.keys() | {row.id for row in parked.superseded}
        others = [name for name in found.records if name not in settled]
        stored = self._tell_stored(connection, others, copies=not part.lost)
        # Of suspects nothing may be said but what their rows say.
        rest = [] if part.lost else [found.records[n] for n in others if n not in stored]
        rest += found.rest
        if answered := len(part.records) - len(rest):
            self._tell(PartAnswered(part.number, answered))
        if rest:
            self._refuse(part._replace(records=rest))

    def _give_up(self, part: UnstartedRecords) -> None:
        """Answers for records that could not be parked."""
        if part.lost:
            # Their COMMIT may have landed: nothing may be said before the journal has spoken.
            self._tell(PartAnswered(part.number, len(part.records)))
        else:
            self._refuse(part)

    def _tell_stored(
        self, connection: Connection, ids: Sequence[str], *, copies: bool
    ) -> set[str]:  # fmt: skip
        """Says what the rows of these ids say; the ids that have one.

        `copies`: they were sent again and are answered so. The others are suspects.
        """
        if not ids:
            return set()
        ttl, schema = self._settings.status_ttl, self._settings.schema
        writer = JournalWriter(schema)
        found = list(writer.find(connection.cursor(), ids).values())
        # Whether its producer can make the fingerprint only a version that knows the type can say.
        self._publish([row_status(row, row.at, tell_fingerprint=False, ttl=ttl) for row in found])
        names = [row.id for row in found]
        if copies and names:
            self._count(Counter(Count(row.type, State(row.state), DUPLICATE) for row in found))
            with contextlib.suppress(errors.LockNotAvailable), connection.transaction():
                connection.execute(LOCK_BRIEFLY)
                writer.add_resends(connection.cursor(), names)
        return set(names)

    def _next_part(self) -> UnstartedRecords | None:
        with self._lock:
            return self._parts.popleft() if self._parts else None

    def _tell_superseded(self, rows: Sequence[Superseded]) -> None:
        if rows:
            self._publish(superseded_statuses(rows, datetime.now(UTC), self._settings.status_ttl))
            self._count(Counter(Count(row.type, row.state, row.code) for row in rows))
