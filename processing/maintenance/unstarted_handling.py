"""Parks or refuses what this instance took and will not start, and keeps its dead letters."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import psycopg
from psycopg import errors

from feedback.contract.counts import Count
from feedback.contract.record import Record, is_read_again
from feedback.contract.states import (
    DATABASE_UNAVAILABLE,
    DUPLICATE,
    PARKED,
    READ_AGAIN,
    SHUTDOWN,
    State,
)
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.database_errors import outage_of
from feedback.journal.parking import ParkedRequest, ParkResult, park
from feedback.journal.releases import LOCK_BRIEFLY
from feedback.journal.rows import StoredRequest
from feedback.journal.writer import JournalWriter
from feedback.postgres import one_line
from processing.ipc.frames import PartAnswered, PartStands
from processing.logs import BoundLogger
from processing.maintenance.copies import Copies, sort_copies
from processing.maintenance.dead_backends import LOOK_AGAIN, DeadBackends
from processing.maintenance.dead_letter_buffer import DeadLetterBuffer
from processing.maintenance.part_queue import PartQueue, after_loss
from processing.maintenance.reporting import Reporting
from processing.maintenance.unstarted import (
    UnstartedRecords,
    names_of,
    parked_statuses,
    parking,
    perhaps_parked,
    refusals,
    stored_statuses,
)
from processing.maintenance.work_rests import worth_a_line
from processing.settings import MaintenanceSettings
from processing.stuck_sessions import NAMED


class UnstartedHandling:
    """Told by the thread that takes frames; what needs the database the database thread does."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        reporting: Reporting,
        log: BoundLogger,
        dead: DeadBackends,
    ) -> None:
        self._log = log
        self._dead = dead
        self._schema = settings.schema
        self._results = bool(settings.results_topic)
        self._reporting = reporting
        self.commits: Commits[Superseded | Count] = Commits(self._tell_parked)
        self._letters = DeadLetterBuffer(settings.schema, log)
        self._parts = PartQueue()
        self._held: list[UnstartedRecords] = []
        """What a session that has not ended may yet commit, a dead worker's or one of this
        process's own: the database thread's."""
        self._look_at = float("-inf")
        """When to look at those again."""

    def pause(self, now: float) -> float | None:
        """Seconds until something is to be parked; None: nothing is."""
        due = self._parts.pause(now)
        if not self._held:
            return due
        look = max(self._look_at - now, 0.0)
        return look if due is None else min(look, due)

    def letters_pause(self, _now: float) -> float | None:
        """Seconds until dead letters are to be stored; None: there are none."""
        return 0.0 if self._letters else None

    @property
    def parts(self) -> bool:
        """Whether something is to be parked that does not rest."""
        return bool(self._parts)

    @property
    def letters(self) -> bool:
        """Whether dead letters are to be stored."""
        return bool(self._letters)

    def park(self, part: UnstartedRecords) -> None:
        """These records are to wait for another instance, as soon as the database is there."""
        self._parts.add([part])

    def refuse(self, part: UnstartedRecords) -> None:
        """Answers for records that will not start here: `failed/<code>`, or a dead letter.

        Dead letters are answered for once they are in the journal: until then the main process
        keeps them, too.
        """
        now, reporting = datetime.now(UTC), self._reporting
        code = part.code
        if code == PARKED:  # which could not be done
            code = DATABASE_UNAVAILABLE if part.limited else SHUTDOWN
        refused = refusals(
            part.records, code, now, reporting.status_ttl, part.decoded, limited=part.limited
        )
        reporting.publish(refused.writes)
        reporting.count(refused.counts)
        reporting.tell(PartAnswered(part.number, len(part.records) - len(refused.letters)))
        self._letters.put(part.number, refused.letters)

    # Done by the database thread

    def park_next(self, connection: Connection) -> None:
        """Parks one part of what waits for it. Raises psycopg.Error where the database is away."""
        now = time.monotonic()
        self._parts.wake(now)
        if self._held and now >= self._look_at:
            self._look_at_held()
        self._hold(connection)
        part = self._parts.next()
        if part is None:
            return
        done = ParkResult({}, [])
        try:
            self._park(connection, part, done)
        except Exception as error:
            parts = perhaps_parked(part, done.runs.keys() | {row.id for row in done.superseded})
            outage = outage_of(error, connected=not connection.closed, journals=True)
            for some in parts:
                if isinstance(error, psycopg.Error) and outage is not None:
                    self._try_again(some, error)
                else:
                    self._give_up(some)
            raise

    def look_again(self) -> None:
        """What rests, or was held back, may be parked, if the sessions have ended."""
        self._parts.wake()
        self._look_at_held()

    def _look_at_held(self) -> None:
        held, self._held = self._held, []
        self._parts.put_back(held)

    def _hold(self, connection: Connection) -> None:
        """Puts aside what may not be looked up yet, as a session may commit it."""
        suspected = self._parts.those(lambda part: bool(part.backends))
        wait = [(part.backends, names_of(part.records)) for part in suspected]
        stay = self._dead.standing(connection, wait, "requests to be parked")
        held = [part for part in suspected if not stay.isdisjoint(part.backends)]
        if self.commits.unclear:
            self.commits.settle(connection)
        if self.commits.unclear:  # a server that has not noticed that its client is gone
            held += [part for part in self._parts.those(_is_unclear) if part not in held]
        if held:
            self._parts.take(held)
            for part in held:
                self._reporting.tell(PartStands(part.number))
            self._held += held
            self._look_at = time.monotonic() + LOOK_AGAIN

    def _try_again(self, part: UnstartedRecords, error: psycopg.Error) -> None:
        """The connection was lost over it, or the server could not do its work."""
        again, rest = after_loss(part)
        if worth_a_line(part.losses + 1) or not again:
            names = names_of(part.records)
            self._log.warning(
                "requests are not parked: the connection was lost each time, or the database could"
                " not do it", tries=part.losses + 1, again=bool(again), requests=len(names),
                first=names[:NAMED], error=one_line(error),
            )  # fmt: skip
        self._parts.add(again, time.monotonic() + rest if rest else None)
        if not again:
            self._give_up(part)

    def leave_suspects(self) -> None:
        """Nothing more is parked: says in the log what dead workers' sessions may yet commit.

        It is not answered for, as nobody knows what becomes of it: who owns its partition next
        reads it again, if it reads again what others had not finished.
        """
        for part in self._held:
            why = "a dead worker's database session did not end"
            if part.unclear:
                why = (
                    "they may be parked: a COMMIT of this process's got no answer, and did not end"
                )
            self._say_left(part, why)

    def _say_left(self, part: UnstartedRecords, why: str) -> None:
        ids = names_of(part.records)
        self._log.error(
            "requests were not parked that may have been begun, or parked: the next owner of their"
            " partitions reads them again, unless read_again is off; then they have to be sent"
            " again", why=why,
            requests=len(ids), first=ids[:NAMED],
        )  # fmt: skip

    def refuse_waiting(self, *, ending: bool = False) -> None:
        """The database is away: what waits to be parked is refused instead.

        What may have been parked is not: if it has a row any instance runs it, and if it has none
        nobody would. It stays in hand until the database answers, so that no low mark rises above
        it; or until the instance is `ending`, whose last mark was told by then.
        """
        kept = []
        self._parts.wake()
        while (part := self._parts.next()) is not None:
            if part.to_be_kept and not ending:
                kept.append(part)
            else:
                self._give_up(part)
        self._parts.put_back(kept)

    def write_letters(self, connection: Connection) -> None:
        """Stores some dead letters. Raises psycopg.Error where the database is away."""
        if not self._letters:
            return
        parts, counts = self._letters.write(connection)
        self._reporting.count(counts)
        for number, n in parts.items():
            self._reporting.tell(PartAnswered(number, n))

    def name_lost_letters(self) -> None:
        """Says in the log which dead letters nobody keeps, now that this process ends."""
        self._letters.name_lost()

    def _park(self, connection: Connection, part: UnstartedRecords, done: ParkResult) -> None:
        reporting = self._reporting
        found = parking(part)
        parked = park(
            connection, found.parcels, part.code,
            schema=self._schema, results=self._results, result=done,
            commits=self.commits,
        )  # fmt: skip
        runs = parked.runs
        mine = [p._replace(run=runs[p.id]) for p in found.parcels if p.id in runs]
        now, ttl = datetime.now(UTC), reporting.status_ttl
        reporting.publish(parked_statuses(mine, found.records, part, now, ttl))
        settled = runs.keys() | {row.id for row in parked.superseded}
        others = [parcel for parcel in found.parcels if parcel.id not in settled]
        copies = self._tell_stored(connection, others, found.records, part)
        # Of suspects nothing may be said but what their rows say.
        rest = [] if part.lost else [found.records[n] for n in copies.unsaid]
        rest += found.rest
        left = len(rest) + len(copies.conflicts) + len(found.repeated)
        if answered := len(part.records) - left:
            waiting = len(runs) + copies.waiting
            reporting.tell(PartAnswered(part.number, answered, waiting))
        self._letters.put(part.number, copies.conflicts)
        if rest:
            self.refuse(part._replace(records=rest))
        if found.repeated:  # which find the rows of the first ones
            self._parts.put_back([part.only(found.repeated)._replace(losses=0)])

    def _tell_parked(self, facts: Sequence[Superseded | Count]) -> None:
        self._reporting.superseded([fact for fact in facts if isinstance(fact, Superseded)])
        self._reporting.count(Counter(fact for fact in facts if isinstance(fact, Count)))

    def _give_up(self, part: UnstartedRecords) -> None:
        """Answers for records that could not be parked."""
        if part.lost:
            # Their COMMIT may have landed: nothing may be said before the journal has spoken.
            self._say_left(part, "the database could not be reached, or refused it")
            self._reporting.tell(PartAnswered(part.number, len(part.records)))
        else:
            self.refuse(part)

    def _tell_stored(
        self,
        connection: Connection,
        parcels: Sequence[ParkedRequest],
        records: Mapping[str, Record],
        part: UnstartedRecords,
    ) -> Copies:
        """Says what the rows of these messages' ids say, and what becomes of the messages.

        But for suspects, and what was only read again, they were sent again and are answered so.
        """
        if not parcels:
            return Copies()
        reporting, writer = self._reporting, JournalWriter(self._schema)
        rows = writer.find(connection.cursor(), [parcel.id for parcel in parcels])
        copies = sort_copies(parcels, records, rows)
        for name in copies.unreadable:
            self._log.error(
                "a failed row has headers in no form that can be read: a message of its id was not"
                " compared with it, nor parked", request_id=name, type=rows[name].type,
            )  # fmt: skip
        ttl = reporting.status_ttl
        reporting.publish(stored_statuses(rows, records, part.comparable, ttl))
        if not part.lost and copies.answered:
            with contextlib.suppress(errors.LockNotAvailable), connection.transaction():
                connection.execute(LOCK_BRIEFLY)
                again, cursor = {n: records[n] for n in copies.resends}, connection.cursor()
                writer.lock(cursor, again)
                writer.add_resends(cursor, again)
            # Where this failed all is done again, and counted then.
            reporting.count(Counter(_answer(rows[n], records[n]) for n in copies.answered))
        return copies


def _answer(row: StoredRequest, record: Record) -> Count:
    """What it is counted as that a row answers a message."""
    code = READ_AGAIN if is_read_again(record) else DUPLICATE
    return Count(row.type, State(row.state), code)


def _is_unclear(part: UnstartedRecords) -> bool:
    return part.unclear
