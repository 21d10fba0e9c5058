"""Records in hand that will not start here: refused, parked or given back."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from feedback.backend import Backend
from feedback.contract.record import (
    OFFSET,
    PARTITION,
    TOPIC,
    Record,
    claim_of,
    is_due,
    read_again,
    size_of,
)
from feedback.contract.states import (
    CANCELLED,
    DATABASE_UNAVAILABLE,
    PARKED,
    SHUTDOWN,
    TIMEOUT,
    WORKER_DIED,
)
from processing.ipc.frames import Claim, EndCalls, ReleaseClaims, Suspect
from processing.logs import BoundLogger
from processing.pool.maintenance_link import MaintenanceLink
from processing.pool.pool import Pool
from processing.pool.running import facts_of

_place_of: Final = itemgetter(TOPIC, PARTITION, OFFSET)


class Handover:
    """From the pool to the maintenance process."""

    def __init__(self, pool: Pool, maintenance: MaintenanceLink, log: BoundLogger) -> None:
        self._pool = pool
        self._maintenance = maintenance
        self._log = log
        self._given_back = 0
        """Claimed rows, since no more are claimed."""
        self._kept: list[Record] = []
        """Messages that only user code can read, while the database is away: nobody sends them
        again."""
        self._untold: list[ReleaseClaims | EndCalls] = []
        """Of claims in hand, while no maintenance process is there: without one no others come."""

    @property
    def count(self) -> int:
        """Records that are neither the pool's any more nor answered for."""
        return self._maintenance.refusing + len(self._kept)

    @property
    def size(self) -> int:
        """The same in bytes."""
        kept = size_of(self._kept) if self._kept else 0
        return self._maintenance.refusing_bytes + kept

    @property
    def records(self) -> list[Record]:
        """Those records, and some that were answered for along with them."""
        return [*self._maintenance.unanswered, *self._kept]

    def database_back(self) -> None:
        """The database can be reached: what was kept for it may run."""
        if not self._kept:
            return
        decoded = self._maintenance.decoded
        # What came since the last look, as its commit was open until then, comes behind it.
        self._kept += self._pool.take_unstarted(lambda r: r[TOPIC] in decoded and not is_due(r))
        # What a worker had came back later than what waited behind it.
        self._kept.sort(key=_place_of)
        self._pool.submit(self._kept, size_of(self._kept))
        self._kept.clear()

    def take_departed(self) -> tuple[list[Record], list[Record]]:
        """As `Departures.take`: what is kept of partitions that are let go is given up, too."""
        departures = self._pool.departures
        if self._kept and departures.places:
            departures.given_up += filter(departures.goes, self._kept)
            self._kept = [record for record in self._kept if not departures.goes(record)]
        return departures.take()

    def refuse_unstarted(self, code: str) -> None:
        """What no worker has is answered `failed/<code>`, or parked where that can be."""
        leaving = code == SHUTDOWN and self._pool.database_up
        unstarted = self._pool.take_unstarted() if self._pool.in_hand else []
        records = self._give_back(unstarted)
        decoded = self._maintenance.decoded
        if code == DATABASE_UNAVAILABLE and decoded:
            self._kept += [r for r in records if r[TOPIC] in decoded]
            records = [r for r in records if r[TOPIC] not in decoded]
        elif self._kept:
            records = self._kept + records
            self._kept = []
        if leaving:
            self._maintenance.park(PARKED, self._leave(records))
            self._park_suspects()
        elif records:
            self._maintenance.refuse(code, records)

    def park_excess(self, now: float) -> None:
        """Records that will not start here, or not soon, wait for any instance."""
        if records := self._pool.take_excess(now, self._maintenance.decoded):
            self._maintenance.park(PARKED, self._give_back(records), limited=True)

    def tell_parked(self) -> None:
        """Says in the log how many wait for another instance, once all are answered for."""
        if requests := self._maintenance.parked + self._given_back:
            self._log.info("not started here: parked for other instances, or given back",
                           requests=requests)  # fmt: skip

    def tell(self, types: list[str]) -> None:
        """Hands over what was counted, and what nobody was there for before. `types`: the app's."""
        untold, self._untold = self._untold, []
        for frame in untold:
            self._send(frame)
        totals = self._pool.totals
        for counted in totals.take(types):
            if not self._maintenance.send(counted):
                totals.put_back(counted)

    def _send(self, frame: ReleaseClaims | EndCalls) -> None:
        if not self._maintenance.send(frame):
            self._untold.append(frame)
        elif isinstance(frame, ReleaseClaims) and not self._pool.queue.claiming:
            self._given_back += len(frame.claims) * self._pool.database_up

    def _give_back(self, records: Sequence[Record]) -> list[Record]:
        """Gives claimed rows back; returns the other records."""
        due = [claim_of(record) for record in records if is_due(record)]
        if due:
            self._send(ReleaseClaims(due, [], in_place=not self._pool.queue.claiming))
        return [record for record in records if not is_due(record)]

    def _leave(self, records: Sequence[Record]) -> list[Record]:
        """Leaves what they read to the next owners of partitions; returns the other records.

        Parked as well it would stand in the way of those, who may have begun it already.
        """
        departures = self._pool.departures
        departures.given_up += filter(departures.told, records)
        return [record for record in records if not departures.told(record)]

    def _park_suspects(self) -> None:
        """What was killed, and what waits behind it, once every worker has gone.

        But for what the next owner of its partition reads, and asks the journal about. A request
        that had its time, or was cancelled, is left: that can't be written any more. A claimed row
        that crashed is left to its lease, so that its loss is counted. Others have to know of what
        is suspect that it may have been begun.
        """
        suspects = self._pool.take_suspects()
        self._end_calls([suspect for _, suspect in suspects if suspect is not None])
        fresh: list[tuple[Record, tuple[int, int], Sequence[Backend]]] = []
        told = self._pool.departures.told
        due: dict[tuple[tuple[Backend, ...], bool], list[Claim]] = {}
        for record, suspect in suspects:
            starts, verdict = 0, None
            backends: tuple[Backend, ...] = ()
            if suspect is not None:
                starts, verdict, backends = suspect.crashes, suspect.verdict, suspect.backends
            # Killed on purpose is no crash.
            crashes = starts - 1 if verdict == SHUTDOWN and starts else starts
            if verdict in (TIMEOUT, CANCELLED):
                self._log.error("left unanswered", verdict=verdict, **facts_of(record))
            elif told(record):
                self._pool.departures.given_up.append(record)
            elif not is_due(record):
                parked = record if suspect is None else read_again(record)
                fresh.append((parked, (starts, crashes), backends))
            elif not crashes and verdict != WORKER_DIED:
                due.setdefault((backends, suspect is not None), []).append(claim_of(record))
        self._maintenance.park_suspects(PARKED, fresh)
        for (gone, begun), claims in due.items():
            self._send(ReleaseClaims(claims, list(gone), begun=begun))

    def _end_calls(self, suspects: Sequence[Suspect]) -> None:
        """What of these is a call outside has no end: nobody here runs it again."""
        codes: dict[str, str] = {}
        backends: dict[str, dict[Backend, None]] = {}
        crashed: set[str] = set()
        for suspect in suspects:
            for token in suspect.tokens:
                # In a chunk one call at a time is open, and the verdict is on what ran.
                if suspect.verdict or token not in codes:
                    codes[token] = suspect.verdict or WORKER_DIED
                if suspect.crashes:
                    crashed.add(token)
                backends.setdefault(token, {}).update(dict.fromkeys(suspect.backends))
        groups: dict[tuple[Backend, ...], dict[str, str]] = {}
        for token, code in codes.items():
            groups.setdefault(tuple(backends[token]), {})[token] = code
        for gone, some in groups.items():
            blamed = [
                token for token, code in some.items() if code == WORKER_DIED and token in crashed
            ]
            self._send(EndCalls(some, list(gone), blamed))
