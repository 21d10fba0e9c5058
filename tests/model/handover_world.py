"""A whole service in which nothing is sent again: marks are told, and partitions are handed over.

The pools are real, and so is what they give up: what has not started of partitions that are let
go, also while workers die, come back late with what was recalled, or lose a transaction. Whoever
is killed, put out, or leaves in peace, the next owner reads from the mark. So each request comes to
its end without its producer; effects keep the order of their keys, whoever has them; and what is
said not to have been begun was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from consumer.intake.events import Place
from feedback.contract.record import (
    KEY,
    OFFSET,
    PARTITION,
    TOPIC,
    Record,
    is_due,
    is_read_again,
    may_have_begun,
)
from processing.ipc.frames import LimitsFound, TypeBounds
from tests.model import group, service_world
from tests.model.group import BATCH
from tests.model.member import Process
from tests.model.pool_rules import Violation
from tests.model.pool_world import Job, SimWorker
from tests.model.service_world import PATIENCE
from tests.model.sim_journal import id_of

MOMENTS = (0, 0, 3, 15, 60)
"""Turns in which what has started may end before its partition goes."""
QUIET = 200
"""Rounds with nothing in hand after which nobody does anything any more."""

Key = tuple[Place, int]


def key_of(record: Record) -> Key:
    """A message's place."""
    return (record[TOPIC], record[PARTITION]), record[OFFSET]


class Instance(service_world.Instance):
    """One that tells what has left its pool."""

    service: World

    def __init__(self, service: World, process: Process) -> None:
        super().__init__(service, process.number)
        self.process = process

    def gave_up(self, record: Record) -> None:
        if self.draining and self.pool.database_up and self.pool.departures.told(record):
            self.pool.departures.given_up.append(record)
            self.service.happened["left to the next owner at a stop"] += 1
            return
        if not is_due(record):
            self.service.late.add(id_of(record))
            if not self.pool.database_up:
                self.service.refused.add(id_of(record))
        super().gave_up(record)
        self.pool.departures.done([record])

    def end_with(self, record: Record, verdict: str) -> None:
        super().end_with(record, verdict)
        if self.draining:
            self.pool.departures.done([record])

    def once(self, process: Process) -> None:
        pool, commit = self.pool, process.commit
        load = pool.in_hand + commit.held
        self.flow.look(load, pool.in_hand_bytes + commit.held_size, self.now)
        process.poll(min(BATCH, self.flow.batch(load, pool.in_hand_bytes + commit.held_size)))
        self.tend()
        process.next(self.flow.room(pool.in_hand, pool.in_hand_bytes).requests)

    def tend(self) -> None:
        super().tend()
        self.depart()

    def depart(self) -> None:
        """What has left the pool is noted, as each turn of the loop does."""
        finished, given_up = self.pool.departures.take()
        for record in given_up:
            self.happened["given up"] += 1
            if self.name(record) in self.must_suspect:
                raise Violation(f"{self.name(record)} is given up as if it had not started")
        if self.process.killed:
            return
        for record in (*finished, *given_up):
            self.process.hand.pop(key_of(record), None)
        self.service.finished.update(key_of(r) for r in finished if not is_due(r))
        self.process.commit.marks.departed(finished, given_up)

    def let_go(self, places: Mapping[Place, int]) -> None:
        """As `LettingGo`: what has not started is given up, what has may end for a moment."""
        self.now, pool = self.service.now, self.pool
        self.act(pool.let_go(places))
        for _ in range(self.rng.choice(MOMENTS)):
            if not pool.departures.has_started(pool.crew.chunks):
                break
            self.turn()
            for worker in list(self.workers.values()):
                if worker.number in self.workers:
                    self.work(worker)
        self.depart()
        self.act(pool.let_go({}))

    # What was begun

    def start(self, worker: SimWorker, job: Job, index: int) -> None:
        opened = len(job.open)
        super().start(worker, job, index)
        record = job.frame.records[index]
        # What may have been begun by another ends here where it must not be entered again.
        if len(job.open) == opened or is_due(record) or may_have_begun(record):
            return
        vain, key = self.service.vain, key_of(record)
        if is_read_again(record) and job.frame.suspect is None:
            self.happened["entered as not begun"] += 1
            if key in vain:
                raise Violation(f"{key} is entered as not begun, and had been")
        vain.add(key)

    def commit(self, worker: SimWorker, job: Job) -> None:
        back = len(job.returned)
        super().commit(worker, job)
        # A chunk that was rolled back may be entered again.
        self.service.vain -= {key_of(job.frame.records[index]) for index in job.returned[back:]}

    def effect(self, record: Record) -> None:
        self.service.vain.discard(key_of(record))
        super().effect(record)


class World(service_world.World):
    """One schedule."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.late: set[str] = set()
        """Requests that have no order any more: parked, or refused."""
        self.refused: set[str] = set()
        """Nobody but their producer sends them again."""
        self.vain: set[Key] = set()
        """Messages whose handlers were entered, with an end that nobody knows."""
        self.order: dict[tuple[Place, bytes], int] = {}
        super().__init__(seed, tracing=tracing, read_again=True)

    def start(self) -> Process:
        process = group.World.start(self)
        self.instances[process.number] = Instance(self, process)
        return process

    # Pools, in place of what the group's world makes of the hands of its members

    def end_some(self, process: Process, most: int) -> None:
        """Workers do."""

    def give_up(self, process: Process, places: Iterable[Place]) -> None:
        self._instance(process).let_go(process.commit.marks.read_from(places))

    def lost(self, process: Process, places: Sequence[Place]) -> None:
        self._instance(process).let_go(process.commit.marks.read_from(places))

    def _instance(self, process: Process) -> Instance:
        instance = self.instances[process.number]
        assert isinstance(instance, Instance)
        return instance

    # The journal

    def in_order(self, instance: service_world.Instance, record: Record) -> None:
        where, key = key_of(record)[0], record[KEY]
        if key is None or is_due(record) or id_of(record) in self.late:
            return
        before = self.order.get((where, key), -1)
        if record[OFFSET] < before and key_of(record) not in self.rewound:
            raise Violation(f"{record[OFFSET]} of key {key!r} in {where} comes after {before}")
        self.order[where, key] = max(before, record[OFFSET])

    # Schedules

    def resend(self, process: Process, _instance: service_world.Instance) -> None:
        """Nobody does; limits change instead."""
        if not process.runs:
            return
        each = self.random.choice((None, 1, 2))
        kind = self.random.choice(("quick", "slow", "again"))
        paused = [kind] if each is None and self.random.random() < 0.4 else []
        bounds: TypeBounds = (each, None, None, None)
        self.count("other limits")
        instance = self._instance(process)
        types = {} if each is None else {kind: bounds}
        instance.act(instance.pool.limit(LimitsFound(0, None, types, paused)))

    def begin(self, request_id: str, kind: str) -> None:
        """Nobody waits for its end."""
        self.send(request_id)

    def turn(self, process: Process, instance: service_world.Instance) -> None:
        super().turn(process, instance)
        if not (process.alive or process.killed or process.frozen or instance.draining):
            instance.tend()  # what runs on after the group was left

    def drains(self, process: Process) -> bool:
        """The grace is over some time after the group was left."""
        return not process.alive and not process.killed and self.random.random() < 0.05

    # The end

    def _calm_turn(self) -> None:
        super()._calm_turn()
        for process in self.processes:
            instance = self._instance(process)
            if not (process.alive or process.killed or instance.draining):
                instance.drain()

    def _check_books(self) -> None:
        """`finish` does, once everything is finished."""

    def finish(self) -> None:
        idle = 0
        for _ in range(PATIENCE):
            if self.journal.waiting and not any(self.in_hand()) and self.at_rest():
                self.skip()
            self._calm_turn()
            idle = idle + 1 if self._nothing_left() else 0
            if idle > (0 if self._answered() else QUIET):
                break
        else:
            raise Violation(f"no end: {list(self.in_hand())} in hand, {self.requests}")
        if not self._answered():
            raise Violation(f"lost: {sorted(set(self.unanswered()) - self.refused)}")
        super()._check_books()
        self.check_statuses()
        for process in self.processes:
            unfinished = process.commit.marks.unfinished
            if process.alive and unfinished is not None:
                left = [*unfinished._left.values(), *filter(None, unfinished._hand.values())]
                if left:
                    raise Violation(f"{process.number} takes {left} for in hand")

    def _answered(self) -> bool:
        return self.refused.issuperset(self.unanswered())

    def _nothing_left(self) -> bool:
        return not self.journal.waiting and not any(self.in_hand()) and self.at_rest()
