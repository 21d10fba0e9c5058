"""The pool's decisions: which worker gets what, and what a report or a death means. Pure.

Events in, actions out, with the time as an argument. The supervisor does what the actions say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from feedback.contract.record import Record, kind_of, size_of
from processing.ipc.channel import WrongFrame
from processing.ipc.frames import (
    NO_ORDER,
    CancelAsked,
    LimitsFound,
    ProbeDatabase,
    Report,
    Returned,
    RowDueIn,
    Suspect,
)
from processing.ipc.progress import Running
from processing.pool.actions import Action, Died, Replaced, Tell
from processing.pool.calls import SeatedCalls, SeatLooks
from processing.pool.chunk import Chunk
from processing.pool.demand import Demand
from processing.pool.departed_records import Departures
from processing.pool.dispatch import Dispatch
from processing.pool.lanes import Lanes
from processing.pool.limits import TypeLimits
from processing.pool.report_totals import ReportTotals
from processing.pool.trying_again import TryingAgain
from processing.pool.waiting_queue import WaitingQueue
from processing.pool.worker_deaths import left_by, suspects_of_report
from processing.pool.worker_state import Worker
from processing.pool.worker_time import Costs
from processing.pool.workers import Workers
from processing.settings import PoolSettings

Looks: TypeAlias = Mapping[int, Running | None]
"""Worker -> what it runs beside calls."""


class Pool:
    """Bounded work in hand, shared out over workers."""

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        self.costs = costs = Costs()
        self.lanes = Lanes(settings.ordering, self.costs)
        self.caps = TypeLimits()
        self.crew = crew = Workers(settings)
        self.calls = SeatedCalls(self.lanes, self.crew, settings.kill_gap)
        self._trying_again = TryingAgain(self.lanes.kept_back, settings.max_in_hand)
        self.queue = WaitingQueue(settings, self.lanes, self.caps, crew, self.calls, costs)
        self._dispatch = Dispatch(
            self.lanes, self.crew, self.calls, self.queue.wants, settings.instance
        )
        self.totals = ReportTotals()
        self.in_hand = 0
        self.in_hand_bytes = 0
        self.stopping = False
        """No new chunk is sent any more."""
        self.departures = Departures()
        self._elsewhere: list[Record] = []
        """Records in hand that will not start here, whatever the limits are when they are given
        up: others of their keys may have gone before them."""

    @property
    def wants(self) -> Demand:
        """Claimed rows in hand, and how many more are wanted."""
        return self.queue.wants

    @property
    def workers(self) -> dict[int, Worker]:
        """By number."""
        return self.crew.all

    @property
    def database_up(self) -> bool:
        """Whether requests can be journaled."""
        return self.crew.database_up

    # Work

    def submit(self, records: Sequence[Record], size: int | None = None) -> None:
        """Takes records whose offsets are committed, each partition's in order.

        `size` is bytes of them, None where nobody has counted.
        """
        self.in_hand += len(records)
        self.in_hand_bytes += size_of(records) if size is None else size
        if elsewhere := self.caps.elsewhere:
            self._elsewhere += [r for r in records if kind_of(r) in elsewhere]
            records = [r for r in records if kind_of(r) not in elsewhere]
        self.lanes.submit(records)

    def may_exceed(self, now: float) -> bool:
        """Whether there may be something for `take_excess`."""
        if self._elsewhere or self.caps.most or self.queue.may_hoard(now):
            return True
        return self._trying_again.may_exceed(now)

    def take_excess(self, now: float, decoded: Collection[str] = ()) -> list[Record]:
        """Gives up records that cannot start here soon.

        Of types that are paused or that others run; of other limited types what waits beyond ten
        times the cap, so that none fills the pool; rows of which others could run more; and what
        stands behind what is tried after a pause. `decoded`: topics that only user code can read.
        """
        records = [*self._elsewhere, *self.lanes.take_apart(self.caps.elsewhere)]
        waiting = self.lanes.waiting
        allowed = {kind: self.queue.may_wait(kind, waiting) for kind in waiting}
        records += [*self.lanes.take_excess(allowed), *self.queue.hoarded(now)]
        self._elsewhere.clear()
        if behind := set(map(id, self._trying_again.excess(now, decoded))):
            records += self.lanes.take_out(lambda record: id(record) in behind)
        self._forget(records, done=False)
        return records

    def let_go(self, places: Mapping[tuple[str, int], int]) -> list[Action]:
        """Gives up what has not started of these partitions alone, from which offset of each on."""
        actions = self.departures.let_go(places, self.workers.values())
        self._forget(self.departures.give_up(self.lanes))
        return actions

    def take_unstarted(self, goes: Callable[[Record], bool] = lambda _: True) -> list[Record]:
        """Gives up every such record that no worker has and that is no suspect."""
        records = [*filter(goes, self._elsewhere), *self.lanes.take_out(goes)]
        self._elsewhere = [record for record in self._elsewhere if not goes(record)]
        self._forget(records)
        return records

    def take_suspects(self) -> list[tuple[Record, Suspect | None]]:
        """Gives up the suspects, and what waits behind them, once every worker has gone."""
        if self.workers:
            return []
        held = self.lanes.take_suspects()
        self._forget([h.record for h in held])
        return [(h.record, h.suspect) for h in held]

    # The waiting queue

    def ask(self, now: float) -> list[Action]:
        """What to tell the maintenance process: how many rows are wanted, whose leases to renew."""
        claiming = self.queue.claiming and not self.stopping and self.database_up
        return self.queue.ask(now, claiming=claiming)

    def claimed(self, order: int, rows: Sequence[tuple[Record, str | None]], now: float) -> None:
        """Rows were claimed: (record, verdict), those that are due first first.

        Under no order: they are in doubt, and their checks are to be asked.
        """
        records = [record for record, _ in rows]
        if order == NO_ORDER:
            size = self.queue.doubts.came(records)
        else:
            size = self.wants.came(order, records, now)
            self.queue.standstill.rows_came()
        self.submit([record for record, verdict in rows if verdict is None], size)
        for record, verdict in rows:
            if verdict is not None:
                self.in_hand += 1
                # The row itself says how often it crashed, or was lost.
                self.lanes.submit_suspect(record, Suspect(verdict, (), ()))

    def new_maintenance(self) -> list[Action]:
        """There is another maintenance process: it is told of every claimed row in hand."""
        return self.queue.new_maintenance(stopping=self.stopping)

    # Chunks

    def plan(self, now: float) -> list[Action]:
        """What to do now: start missing workers, fill free ones."""
        self._forget(self.departures.give_up(self.lanes))
        actions = self._trying_again.tend(now)
        if not self.stopping:
            actions += self.crew.spawn_missing(now)
        if self.stopping or not self.database_up or self.queue.standstill.rows_first(now):
            return actions
        return actions + self._dispatch.plan(now)

    def token(self, chunk: Chunk) -> str:
        """The token that a chunk's claims carry: no other chunk of any instance has it."""
        return chunk.token(self.settings.instance)

    # What workers say

    def ready(self, number: int) -> list[Action]:
        """A worker has loaded the app and has tried the database."""
        return self.crew.ready(number)

    def returned(self, number: int, frame: Returned) -> None:
        """A worker gave back records that it had not started."""
        worker = self.workers[number]
        worker.returns += 1
        for chunk in worker.chunks:
            if chunk.number == frame.chunk:
                self.lanes.take_back(chunk, frame.indices, worker.chunks)

    def report(self, number: int, report: Report) -> list[Action]:
        """A worker is done with its first chunk. Raises WrongFrame where it is another's."""
        worker = self.workers[number]
        self.queue.standstill.moved()
        chunk = worker.take_first(report.chunk)
        if chunk is None:
            raise WrongFrame(f"chunk {report.chunk} was reported, which is not its first")
        # It lives, so nothing is at work on the connection that it has now.
        lost = worker.backends[:-1] if report.database_up else worker.backends
        suspects = suspects_of_report(chunk, report, lost, self.token(chunk))
        back = {*report.returned, *suspects}
        worker.returns += bool(back)
        if not worker.seats.taken:
            del worker.backends[:-1]  # what the next chunk may have to do with
        if chunk.suspect is not None and report.database_up:
            self._trying_again.looked_up(chunk.suspect, report.unended, refused=report.refused)
        whole = not back and not chunk.gone  # as nearly always
        done = chunk.records if whole else chunk.take_done(back)
        self.costs.reported(() if chunk.suspect else done, report.times)
        self.totals.report(report, len(chunk.records))
        self._forget(done, chunk.size if whole else None)
        self.departures.done(done)
        if whole:
            self.lanes.release(chunk)
        else:
            # Whose connection broke goes alone: it may be what broke it. So does what is no call.
            all_alone = not report.database_up or chunk.seat is not None
            alone = range(len(chunk.records)) if all_alone else report.alone or ()
            elsewhere = report.elsewhere or ()
            self.lanes.put_back(chunk, suspects, alone=alone, elsewhere=elsewhere)
        for index, seconds in zip(report.alone or (), report.held_up or (), strict=True):
            self._dispatch.was_held_up(chunk, index, seconds)
        actions: list[Action] = []
        if report.due_in is not None:
            actions.append(Tell(RowDueIn(report.due_in)))
        if not report.database_up:
            worker.suspended = worker.cut_off = True
            actions.append(Tell(ProbeDatabase()))
        if report.leaving is not None and self.crew.retire(number):
            actions.append(Replaced(number, report.leaving))
        return actions

    def database(self, *, up: bool, turned_away: bool = False) -> None:
        """The maintenance process has looked whether the database can be reached."""
        self.crew.database(up=up, turned_away=turned_away)

    @property
    def probing(self) -> bool:
        """A worker waits to hear whether the database can be reached."""
        return any(worker.suspended for worker in self.workers.values())

    def _forget(self, gone: Sequence[Record], size: int | None = None, done: bool = True) -> None:
        self.in_hand -= len(gone)
        self.in_hand_bytes -= size_of(gone) if size is None else size
        if self.wants.hand:
            self.wants.went(gone, done=done)
        self.queue.doubts.went(gone)

    # Deaths

    def died(self, number: int, cause: str, running: Running | None, now: float) -> list[Action]:
        """A worker is gone, after everything that it sent was taken.

        `running` is the last look at its slot. Its records come back: of the chunk it ran as
        suspects, one by one; of the chunk it had not begun as they were.
        """
        worker = self.crew.gone(number, cause)
        if not worker.ready:
            self.crew.failed(worker, now)
        if not worker.chunks:
            if not worker.leaving and worker.ready:
                self.crew.respawn.died(now)
            return []
        self._trying_again.left_by(number, worker.backends)
        left = left_by(worker, running, now, cause, self.token)
        # Who was told to end a request died of it also where nobody can tell which it was.
        self.crew.respawn.died(now, blamed=bool(left.blamed) or worker.terminated is not None)
        self.costs.killed(left.blamed)
        for chunk, suspects in left.chunks:
            self.lanes.put_back(chunk, suspects)
        count = sum(len(suspects) for _, suspects in left.chunks)
        return [Died(number, cause, count, left.blamed[0] if left.blamed else None)]

    def refused(self, number: int, error: str, now: float) -> None:
        """The system has not started a worker."""
        self.crew.refused(number, error, now)

    # Life

    def cancel(
        self, asked: CancelAsked, looks: Looks, seats: SeatLooks, now: float
    ) -> list[Action]:
        """Ends that request and no other; nothing where it does not run at this look."""
        return self.crew.cancel(asked, looks, now) or self.calls.cancel(asked, seats, now)

    def tick(self, looks: Looks, now: float, seats: SeatLooks | None = None) -> list[Action]:
        """Looks at what runs: overdue requests, workers that don't start, slow neighbours."""
        actions = self.crew.tick(looks, now)
        return actions + self.calls.tick(seats, now) if seats else actions

    def limit(self, found: LimitsFound) -> list[Action]:
        """Other limits hold."""
        if self.caps.limits(found):
            self._limit_lanes()
        return self.resize(self.caps.workers or self.settings.workers)

    def app(
        self,
        types: Collection[str],
        most: Mapping[str, int],
        at_once: Mapping[str, int],
        checked: Sequence[str] = (),
    ) -> None:
        """What the app's handlers say: their limits, and how many calls a worker may have open.

        `checked`: types of which requests in doubt may be asked about.
        """
        self.queue.doubts.types = tuple(checked)
        self.limit_by_app(most)
        self.calls.app(at_once, others=len(types) > len(at_once))

    def limit_by_app(self, at_once: Mapping[str, int]) -> None:
        """The handlers' own limits."""
        if self.caps.app(at_once):
            self._limit_lanes()

    def _limit_lanes(self) -> None:
        in_chunk = {kind: self.caps.in_chunk(kind, self.crew.wanted) for kind in self.caps.most}
        self.lanes.limit(self.caps.most, in_chunk)

    def resize(self, workers: int) -> list[Action]:
        """Changes how many workers there should be; those too many end after what they run."""
        if workers == self.crew.wanted:
            return []
        actions = self.crew.resize(workers)
        self._limit_lanes()
        return actions

    def stop(self) -> list[Action]:
        """Every worker ends after the request that it runs; nothing new is started."""
        self.stopping = True
        return self.crew.leave_all()

    def terminate(self, looks: Mapping[int, Running | None], now: float) -> list[Action]:
        """Asks what still runs to give up, because the service is about to end."""
        return self.crew.terminate(looks, now)
