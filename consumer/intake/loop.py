"""The main process's loop: Kafka on one side, the pool on the other, in one thread.

One turn: wait where there is most to wait for, take what happened, keep the gate as it has to be,
commit what may be committed, deliver what is confirmed. Decisions are made by `Commit`,
`FlowControl`, `Crowding` and `Assignment`; here they are carried out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from consumer.intake import waits
from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.events import (
    Action,
    Answered,
    Assigned,
    ConnectionLost,
    Deliver,
    Drop,
    EndService,
    Event,
    Found,
    JoinedAnew,
    OffsetReset,
    Place,
    Polled,
    ReadBack,
    Rejoin,
    Revoked,
    SendCommit,
    Trouble,
)
from consumer.intake.flow_control import Crowding, FlowControl, Reason
from consumer.intake.leaving import Leaving
from consumer.intake.letting_go import LettingGo
from consumer.intake.ports import KafkaClient, WorkerPool
from consumer.intake.stats import LoopStats
from consumer.intake.turns import Turns
from consumer.intake.unfinished import Unfinished
from consumer.intake.unknown_starts import UnknownStarts
from feedback.contract.record import Record
from processing.logs import BoundLogger, RateLimited

REJOIN_LIMIT = 30.0
"""Seconds after which a rejoin does not wait any longer for the assignment to become empty."""
SLOW_COMMIT = 10.0
"""Seconds between two lines about a commit that waits for its answer."""


class Loop:
    """Owns the Kafka client, and everything that decides about it."""

    def __init__(
        self,
        kafka: KafkaClient,
        pool: WorkerPool,
        flow: FlowControl,
        instance: str,
        log: BoundLogger,
        clock: Callable[[], float] = time.monotonic,
        *,
        read_again: bool = True,
    ) -> None:
        self._kafka = kafka
        self._pool = pool
        self._flow = flow
        self._assignment = Assignment()
        self._commit = Commit(self._assignment, instance, Unfinished() if read_again else None)
        self._letting_go = LettingGo(pool, self._commit, clock, read_again=read_again)
        kafka.before_revoke = self._letting_go.now
        self._unknown = UnknownStarts()
        self._crowding = Crowding()
        self._turns = Turns()
        self._log = log
        self._flood = RateLimited(log)
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._leaving = Leaving(kafka.close, log, clock)
        self._rejoin_until: float | None = None
        """A rejoin waits for the assignment to become empty, at most until then."""
        self._complained = 0.0
        self._unread = 0
        """Questions for committed offsets in a row without an answer."""
        self.fatal: str | None = None
        """Why the service has to end, once it has to."""

    # One turn

    def turn(self) -> None:
        """Waits a moment, then does all that can be done."""
        if self.leaving:
            self._pool.step(waits.BUSY_WAIT)
            self._pool.take_departed()
            return
        self._wait()
        now = self._clock()
        self._commit.marks.departed(*self._pool.take_departed())
        if self._letting_go.going:
            self._act(self._letting_go.tend(now))
        self._ask_again(now)
        requests, size = self._pool.in_hand, self._pool.in_hand_bytes
        self._tend_crowd(now, requests, size)
        self._tend_gate(now, requests, size)
        self._act(self._commit.next(now, self._flow.room(requests, size)))
        self._finish_rejoin(now)
        self._complain(now)

    def _wait(self) -> None:
        """Waits for what is most likely to come next, and looks at everything else."""
        since = self._commit.open_since
        age = None if since is None else self._clock() - since
        supplied = self._pool.supplied
        pending_wait = waits.BUSY_WAIT if supplied or self._pool.saturated else waits.PENDING_WAIT
        if self._flow.holding and age is None:
            self._pool.step(pending_wait)
        elif supplied or self._pool.pending or self._flow.holding:
            # Full with a commit open: each poll for its answer may bring a record more.
            self._pool.step(pending_wait if age is None or supplied else waits.COMMIT_WAIT)
            self._poll(0.0)
        elif age is not None:
            if self._poll(waits.commit_wait(age)) == 0:
                time.sleep(waits.commit_pause(age))
            self._pool.step(0.0)
        elif self._turns.paused:
            self._pool.step(waits.BUSY_WAIT)
            self._poll(0.0)
        else:
            self._poll(waits.BUSY_WAIT if self._pool.in_hand else waits.IDLE_WAIT)
            self._pool.step(0.0)

    def _poll(self, timeout: float) -> int:
        """Polls for as much as there is room for; returns how many events came."""
        load = self._pool.in_hand + self._commit.held
        most = self._flow.batch(load, self._pool.in_hand_bytes + self._commit.held_size)
        # Polled in any case, for the callbacks and because the group asks for it: partitions are
        # paused where there is no room.
        events = self._kafka.poll(max(most, 1), timeout)
        for event in events:
            self._on(event)
        return len(events)

    def _ask_again(self, now: float) -> None:
        places = self._unknown.due(now)
        if places and not (self._commit.stopped or self._commit.rejoining):
            seconds = waits.START_TIMEOUTS.after(self._unknown.tries)
            self._begin(self._kafka.find_starts(places, seconds))

    def _tend_gate(self, now: float, requests: int, size: int) -> None:
        """Pauses or resumes partitions where that has changed."""
        self._flow.set(Reason.DATABASE, closed=not self._pool.database_up)
        self._flow.set(Reason.WORKERS, closed=not self._pool.workers_start)
        requests, size = requests + self._commit.held, size + self._commit.held_size
        self._flow.look(requests, size, now, self._crowding.share)
        paused = self._flow.paused
        if self._turns.due(now, paused=paused):
            self._counts["pauses"] += paused
            ours = [place for place in self._assignment.places if place not in self._crowding]
            some = self._turns.change(ours, now, paused=paused, busy=requests > 0)
            self._kafka.pause(some, paused=paused)

    def _tend_crowd(self, now: float, requests: int, size: int) -> None:
        """Pauses partitions whose waiting requests would fill the bound, and resumes them."""
        crowding, each = self._crowding, self._flow.share_of_one(requests, size)
        waiting = self._pool.held_back * each
        if not crowding.due(waiting, now, self._pool.kept_back * each):
            return
        backlogs = {p: b for p, b in self._pool.backlogs().items() if p in self._assignment}
        pause, resume = crowding.look(backlogs, waiting, each)
        for place in pause:
            n, seconds, kind, standing = backlogs[place]
            self._flood.warning(
                "what waits of one partition would fill the bound: it is paused",
                topic=place[0], partition=place[1], waiting=n, seconds=round(seconds), type=kind,
                standing=standing,
            )  # fmt: skip
        if not self._turns.paused:
            self._kafka.pause(pause, paused=True)
            self._kafka.pause(resume, paused=False)

    # Events

    def _on(self, event: Event) -> None:
        match event:
            case Polled(records):
                self._on_polled(records)
            case Answered():
                self._act(self._commit.answered(event))
            case Assigned():
                self._on_assigned(event)
            case Revoked(places, lost):
                self._log.info("partitions revoked", n=len(places), lost=lost)
                self._crowding.revoked(places)
                self._unknown.revoked(places)
                self._counts["partitions lost"] += lost
                if still_ours := [place for place in places if place in self._assignment]:
                    self._letting_go.lost(still_ours)
                self._act(self._commit.revoked(places))
            case ConnectionLost(_, late):
                self._act(self._commit.connection_lost(late=late))
            case JoinedAnew():
                self._counts["rejoins"] += 1
                self._commit.joined_anew()
            case OffsetReset(place):
                self._assignment.offset_reset(place)
            case Trouble():
                self._on_trouble(event)

    def _on_polled(self, records: list[Record]) -> None:
        taken = self._assignment.take(records)
        self._counts["polled"] += len(records)
        self._counts["drop:unowned"] += taken.unowned
        self._counts["drop:stale"] += taken.stale
        self._on_restarted(taken.restarted)
        if taken.runs:
            self._turns.heard(run.place for run in taken.runs)
            size = self._commit.polled(taken.runs)
            self._flow.polled(sum(len(run.records) for run in taken.runs), size)

    def _on_restarted(self, places: Mapping[Place, int]) -> None:
        for topic, partition in places:
            self._log.error(
                "a topic was made anew, or its log cut off", topic=topic, partition=partition
            )
        self._counts["restarted"] += len(places)
        self._act(self._commit.restarted(places))

    def _on_assigned(self, event: Assigned) -> None:
        self._log.info("partitions assigned", n=len(event.places))
        self._begin(event)

    def _begin(self, event: Assigned) -> None:
        self._unknown.found(event.places, event.unknown, self._clock())
        # Of the others nothing is taken, as what was not finished of them comes first.
        places = [place for place in event.places if place not in event.unknown]
        if event.unknown and not places:
            return
        self._act(self._commit.assigned(places, event.gaps))
        # Always said: the client keeps the flag of a partition over its revocation.
        self._kafka.pause(places, paused=self._turns.paused)

    def _on_trouble(self, trouble: Trouble) -> None:
        if trouble.ends_service:
            self.fatal = self.fatal or f"Kafka: {trouble.code}: {trouble.detail}"
        else:
            self._flood.warning("kafka", error=trouble.code, detail=trouble.explained)

    # Actions

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Deliver(records, size):
                    self._pool.submit(records, size)
                case SendCommit(offsets, metadata, marks):
                    refused = self._kafka.commit(offsets, metadata, marks)
                    if refused is not None:
                        self._act(self._commit.answered(refused))
                case ReadBack(places):
                    found = self._read_back(places)
                    self._act(self._commit.read_back(found, self._clock()))
                case Drop((topic, partition), count, cause):
                    self._flood.info(
                        "records dropped", topic=topic, partition=partition, n=count, cause=cause
                    )
                case Rejoin(reason):
                    self._log.warning("joining the group anew", reason=reason)
                    self._kafka.unsubscribe()
                    self._rejoin_until = self._clock() + REJOIN_LIMIT
                case EndService(message):
                    self.fatal = self.fatal or message

    def _read_back(self, places: Sequence[Place]) -> Found:
        """Asks for committed offsets, for longer where the last questions were not answered."""
        found = self._kafka.committed(places, waits.read_back_timeout(self._unread + 1))
        self._unread = 0 if found else self._unread + 1
        return found

    def _finish_rejoin(self, now: float) -> None:
        if self._rejoin_until is None:
            return
        if not self._assignment.places and not self._unknown.places:
            self._rejoin_until = None
            self._commit.rejoined()
            self._kafka.subscribe()
        elif now > self._rejoin_until:
            # Going on in the old membership could let late bytes put an offset back.
            self.fatal = self.fatal or f"the group was not left within {REJOIN_LIMIT:g} s"

    def _complain(self, now: float) -> None:
        self._flood.flush()
        since = self._commit.open_since
        if since is not None and now - max(since, self._complained) > SLOW_COMMIT:
            self._complained = now
            self._log.warning("a commit waits for its answer", seconds=round(now - since, 1))

    # Start and end

    def start(self) -> None:
        """Joins the group."""
        self._kafka.subscribe()

    def stop_intake(self) -> None:
        """Takes nothing more; what was not committed, or not started, is left to others."""
        self._flow.set(Reason.DRAINING, closed=True)
        self._act(self._commit.stop())
        self._letting_go.begin_all(self._assignment.places)

    @property
    def joined(self) -> bool:
        """The group counts this process as a member, with or without partitions."""
        return not self.leaving and self._kafka.member

    @property
    def settled(self) -> bool:
        """No commit is open, and none is to be made."""
        return self._commit.open_since is None and not self._letting_go.going

    def abandon(self) -> None:
        """Gives up a commit whose answer did not come in time."""
        self._letting_go.give_up()
        self._act(self._commit.abandon())

    def leave(self) -> None:
        """Leaves the group. Once that has begun turns only tend the pool.

        It is to be called again until it has, as the system may have no thread left for it.
        """
        self._leaving.begin()

    @property
    def leaving(self) -> bool:
        return self._leaving.begun

    @property
    def left(self) -> bool:
        """The client is closed."""
        return self._leaving.over

    def stats(self) -> LoopStats:
        """A frozen look at the loop."""
        return LoopStats(
            assigned=len(self._assignment.places), held=self._commit.held,
            paused=self._flow.reasons, joined=self.joined,
            missing_topics=self._kafka.missing_topics, without_start=self._unknown.places,
            counts=dict(self._counts + self._commit.counts), lost=dict(self._commit.lost),
        )  # fmt: skip
