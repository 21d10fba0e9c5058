"""Work on the waiting queue: claims rows that are due, keeps the claims, gives them back.

The thread that takes frames says what is to be done; the database thread does it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from feedback.backend import Backend
from feedback.contract.record import claim_of
from feedback.journal.claimed_rows import UnreadableRow
from feedback.journal.claims import (
    LEASE,
    ClaimRequest,
    claim,
    claims_of,
)
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits, Fate, fate_of
from feedback.journal.connections import Connection
from feedback.journal.releases import ReturnMarks, release
from feedback.journal.type_turns import TypeTurns
from feedback.journal.unknown_types import UnknownTypes
from feedback.journal.writer import JournalWriter
from processing.ipc.frames import (
    DueRows,
    Frame,
    ReleaseClaims,
    RenewCalls,
    RenewClaims,
    RowDueIn,
    WantRows,
)
from processing.logs import BoundLogger
from processing.maintenance.claim_timing import ClaimTiming
from processing.maintenance.dead_backends import LOOK_AGAIN, DeadBackends
from processing.maintenance.renewals import Renewals
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings
from processing.stuck_sessions import NAMED

_ASK_AGAIN: Final = 1.0
"""Seconds until a server is asked again for a transaction that still ran."""


class _FailedClaim(NamedTuple):
    """Claims whose COMMIT had no answer."""

    number: str
    """Of its transaction."""
    claims: set[tuple[str, int]]
    """But for those that were claimed since with an answer, perhaps under the same order."""


class _Release(NamedTuple):
    """How a claim is to be given back."""

    begun: bool = False
    """It may have been begun."""
    in_place: bool = False
    """It keeps its place among what is due."""
    backends: Sequence[Backend] = ()
    """Of dead workers, to be gone before."""
    until: float = math.inf
    """By then (monotonic seconds) its lease has run out, and there is nothing to give back."""


class Claimer:
    """What is to be done about rows that are due."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        reporting: Reporting,
        log: BoundLogger,
        dead: DeadBackends,
    ) -> None:
        self._log = log
        self._dead = dead
        self._instance = settings.instance
        self._schema = settings.schema
        self._results = bool(settings.results_topic)
        self._reporting = reporting
        self.renewals = Renewals(settings, reporting.tell)
        self.commits: Commits[Superseded | UnreadableRow] = Commits(self._tell_ended)
        self._after = ""
        """The type where the last claim left off: the database thread alone knows."""
        self._strays_after = ""
        """The same of the look for what the maintenance process before this one had claimed."""
        self._unknown = UnknownTypes(settings.unknown_left)
        self._turns = TypeTurns()
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._timing = ClaimTiming(settings.claim_pause)
        self._known: frozenset[str] = frozenset()
        """Types that have handlers here; none before the main process has said so."""
        self._foreign: frozenset[str] = frozenset()
        self._releases: dict[tuple[str, int], _Release] = {}
        self._held: set[tuple[str, int]] = set()
        """Those of them that wait for dead workers' backends."""
        self._look_at = float("-inf")
        """When to look at those again."""
        self._all: RenewClaims | None = None
        """What is in hand of the claims of the maintenance process before this one."""
        self._first: int | None = None
        """The first order that this process was given: older ones were the one's before it."""
        self._unclear: list[_FailedClaim] = []
        """They may have been committed, or may yet be."""
        self._ask_at = float("-inf")
        self._began = time.monotonic()

    # Said by the thread that takes frames

    def on_frame(self, frame: Frame) -> None:
        """What the main process says of the waiting queue."""
        with self._lock:
            match frame:
                case WantRows(order):
                    self._first = order if self._first is None else self._first
                    wanted = ClaimRequest(*frame)
                    self._timing.wanted(wanted, time.monotonic())
                case RowDueIn(seconds):
                    self._timing.woken(time.monotonic(), seconds)
                case RenewClaims(all_to=all_to):
                    self.renewals.want(frame)
                    if all_to:
                        self._all = frame
                case RenewCalls():
                    self.renewals.want(frame)
                case ReleaseClaims(pairs, backends, begun, in_place):
                    # As soon as the database can be reached, and dead workers' backends are gone.
                    how = _Release(begun, in_place, backends, time.monotonic() + LEASE)
                    self._releases.update(dict.fromkeys(pairs, how))
                case _:
                    raise AssertionError(f"no frame of the waiting queue: {frame!r}")

    def learn(self, types: Iterable[str]) -> None:
        """These types have handlers here: however many others wait, their rows are looked for."""
        with self._lock:
            self._known = frozenset(types)

    def leave_to_others(self, types: frozenset[str]) -> None:
        """Rows of these types are not claimed: only other instances have handlers for them.

        Advice, as Redis says it: without it, others are known by the claims in the journal.
        """
        with self._lock:
            if self._foreign - types:
                self._timing.woken(time.monotonic())  # some of them may be due here now
            self._foreign = types

    def woken(self) -> None:
        """Somebody says that a row is due."""
        with self._lock:
            self._timing.woken(time.monotonic())

    def stop(self) -> None:
        """Nothing more is claimed."""
        with self._lock:
            self._timing.stop()

    # Done by the database thread

    def return_pause(self, now: float) -> float | None:
        """Seconds until claims are to be given back, or looked for; None while none are."""
        with self._lock:
            if self._all or self._releases.keys() - self._held:
                return 0.0
            looks = [self._ask_at] if self._unclear else []
            looks += [self._look_at] if self._held else []
            return max(min(looks) - now, 0.0) if looks else None

    def pause(self, now: float) -> float | None:
        """Seconds until rows are to be claimed; None while none are wanted.

        None while leases wait to be renewed, too: those that run out are claimed here as well.
        """
        if self.renewals.pause(now) is not None:
            return None
        with self._lock:
            return self._timing.pause(now)

    def give_back(self, connection: Connection) -> None:
        """Gives claims back, which may take a while. Raises psycopg.Error."""
        self._find_failed(connection)
        self._give_back(connection)
        if self._find_strays(connection):
            self._give_back(connection)

    def leave_to_leases(self) -> None:
        """Nothing more is given back: says in the log what is left, of which leases run out."""
        with self._lock:
            left = sorted(request_id for request_id, _ in self._releases)
        self._say_left(left)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            releases = self._releases.copy()
        held = self._find_held(connection, releases)
        free = {claim: how for claim, how in releases.items() if claim not in held}
        if free:
            marks = ReturnMarks(
                [request_id for (request_id, _), how in free.items() if how.begun],
                [request_id for (request_id, _), how in free.items() if how.in_place],
            )
            left = release(
                connection, self._instance, free, schema=self._schema, results=self._results,
                marks=marks, commits=self.commits,
            )  # fmt: skip
            given_back = free.keys() - left
            self._tell_begun(connection, [c for c in given_back if free[c].begun])
            with self._lock:
                for claim in given_back:
                    self._releases.pop(claim, None)

    def _tell_begun(self, connection: Connection, claims: Iterable[tuple[str, int]]) -> None:
        """Of what had begun it may have been told that it runs: says what its rows say now."""
        if ids := sorted({request_id for request_id, _ in claims}):
            rows = JournalWriter(self._schema).find(connection.cursor(), ids)
            self._reporting.stored(rows.values())

    def _find_held(
        self, connection: Connection, releases: Mapping[tuple[str, int], _Release]
    ) -> set[tuple[str, int]]:
        """Claims that dead workers may yet end; of those whose leases have run out no more."""
        kept = [(how.backends, [request_id]) for (request_id, _), how in releases.items()]
        stay = self._dead.standing(connection, kept, "claims to be given back")
        now = time.monotonic()
        held = {claim for claim, how in releases.items() if not stay.isdisjoint(how.backends)}
        over = {claim for claim in held if releases[claim].until <= now}
        with self._lock:
            for claim in over:
                self._releases.pop(claim, None)
            self._held, self._look_at = held - over, now + LOOK_AGAIN
        self._say_left(sorted(request_id for request_id, _ in over))
        return held

    def _say_left(self, ids: Sequence[str]) -> None:
        if ids:
            self._log.warning(
                "claims were not given back: any instance takes them once their leases have run"
                " out", requests=len(ids), first=ids[:NAMED],
            )  # fmt: skip

    def _find_failed(self, connection: Connection) -> None:
        """What landed of claims without an answer nobody has in hand: it is to be given back."""
        for failed in self._unclear.copy():
            fate = fate_of(connection, failed.number)
            if fate is Fate.RUNS:  # its server has not noticed yet that its client is gone
                self._ask_at = time.monotonic() + _ASK_AGAIN
                continue
            with self._lock:
                if fate is Fate.COMMITTED:
                    self._releases.update(dict.fromkeys(failed.claims, _Release()))
                self._unclear.remove(failed)

    def _find_strays(self, connection: Connection) -> bool:
        """Claims of the process before this one that nobody has in hand are to be given back.

        What was claimed here may be on its way to the main process, or run, while it is being told.
        Looks at some types at a time; True where there are such claims of theirs.
        """
        with self._lock:
            told, first = self._all, self._first
        if told is None:
            return False
        most = told.all_to if first is None else min(told.all_to, first - 1)
        # Those that held when it ended, before this process began.
        until = time.monotonic() - self._began
        found, self._strays_after = claims_of(
            connection, self._instance, until + LEASE, until,
            schema=self._schema, after=self._strays_after,
        )  # fmt: skip
        strays = [pair for pair in found - set(told.claims) if pair[1] <= most]
        with self._lock:
            for pair in strays:
                self._releases.setdefault(pair, _Release())
            if not self._strays_after and self._all is told:
                self._all = None
        return bool(strays)

    def claim(self, connection: Connection) -> None:
        """Claims rows where it is time. Raises psycopg.Error where the database is away."""
        with self._lock:
            now = time.monotonic()
            wanted = self._timing.tick(now)
            known, foreign = self._known, self._foreign
            expired = not self.renewals.sparing(now)
        if wanted is None:
            return
        wanted = replace(wanted, paused=foreign.union(wanted.paused))
        claiming: list[tuple[str, list[str]]] = []
        try:
            found = claim(
                connection, self._instance, wanted,
                schema=self._schema, results=self._results, after=self._after, known=known,
                unknown=self._unknown, turns=self._turns, expired=expired, commits=self.commits,
                claiming=lambda number, ids: claiming.append((number, ids)),
            )  # fmt: skip
        except BaseException:
            ended = time.monotonic()
            with self._lock:
                self._timing.failed(ended)
                for number, ids in claiming:
                    claims = {(request_id, wanted.order) for request_id in ids}
                    self._unclear.append(_FailedClaim(number, claims))
                    self._ask_at = ended
            raise
        self._after = found.after
        for failed in self._unclear:
            failed.claims.difference_update(claim_of(row.record) for row in found.rows)
        with self._lock:
            in_time = self._timing.claimed(len(found.rows), found.due_in, time.monotonic())
        vain = found.unsettled + ([] if in_time else [row.record for row in found.rows])
        if vain:
            with self._lock:
                self._releases.update((claim_of(record), _Release()) for record in vain)
        if in_time and found.rows:
            rows = [(row.record, row.verdict) for row in found.rows]
            self._reporting.tell(DueRows(wanted.order, rows))

    def _tell_ended(self, rows: Sequence[Superseded | UnreadableRow]) -> None:
        self._reporting.superseded([row for row in rows if isinstance(row, Superseded)])
        unreadable = [row for row in rows if isinstance(row, UnreadableRow)]
        self._reporting.unreadable(unreadable)
        for row in unreadable:
            self._log.error(
                "a waiting row holds no request: dead", request_id=row.id, type=row.type,
                error=row.error,
            )  # fmt: skip
