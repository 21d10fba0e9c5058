"""A whole service: instances with their pools, one journal, and clients that send again.

The group, the broker and late commits are those of `group`, workers and their channels those of
`pool_world`. Here they meet: what a commit confirms goes into a real pool, bounded by the real flow
control; what an instance leaves waits in the journal, is claimed under a token and a lease by any
of them, and fenced by both; and what got lost is sent again under its id.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate

from consumer.intake.events import Place
from consumer.intake.flow_control import FlowControl
from feedback.contract.record import (
    KEY,
    NOWHERE,
    OFFSET,
    PARTITION,
    TOPIC,
    TYPE,
    Record,
    claim_of,
    is_due,
)
from feedback.contract.states import DATABASE_UNAVAILABLE, State
from feedback.contract.times import moment
from feedback.journal.type_turns import TypeTurns
from feedback.status.status import StatusFields, StatusWrite
from processing.ipc.frames import RenewCalls, RenewClaims, RenewLeases, Suspect, WantRows
from processing.pool.actions import Action, Send, Tell
from processing.settings import PoolSettings
from tests.model import group, happenings, pool_world
from tests.model.group import BATCH, PROTOCOLS
from tests.model.member import Process
from tests.model.pool_rules import Violation, at_rest, in_every_state
from tests.model.pool_world import NO_LIMITS, SimWorker
from tests.model.producers import PATIENCE as SILENCES
from tests.model.producers import Producers
from tests.model.sim_journal import MERGES, Journal, Row, id_of
from tests.model.sim_redis import Redis

BOUND = 30
"""Requests of one instance that are committed and not finished, at most."""
KEYS = (None, b"a", b"b", b"c")
KINDS = (*["quick"] * 4, "slow", "hangs", "again", "fails", MERGES, MERGES)
REFERENCES = ("x", "y")
LEASE = 60.0
PATIENCE = 4000
"""Rounds after the last fault in which everything has to come to its end."""


class Instance(pool_world.World):
    """The pool, the workers and the maintenance process of one member of the group."""

    def __init__(self, service: World, number: int) -> None:
        self.service = service
        self.number = number
        super().__init__(service.random.getrandbits(32), tracing=service.tracing)
        self.now, self.happened = service.now, service.happened
        self.flow = FlowControl(BOUND, 1 << 20)
        self.draining = False
        self.want: WantRows | None = None
        self.turns = TypeTurns()
        self.owed: Sequence[tuple[str, int]] = ()
        """Claims whose leases the maintenance process was told last to renew."""

    @property
    def hopeless(self) -> bool:
        """None of its workers could start."""
        return self.pool.crew.respawn.hopeless is not None

    def settings(self) -> PoolSettings:
        """A small instance."""
        return PoolSettings(
            workers=self.rng.randint(1, 2),
            max_in_hand=BOUND,
            max_due=20,
            instance=f"i{self.number}",
        )

    # In other words than the pool's world alone

    def say(self, line: str, *about: object) -> None:
        self.service.say("instance {}: " + line, self.number, *about)

    def name(self, record: Record) -> Hashable:
        return claim_of(record) if is_due(record) else (record[PARTITION], record[OFFSET])

    def row(self, record: Record) -> tuple[Row | None, bool]:
        """Its row, and whether that is still this claim's."""
        row = self.service.journal.rows.get(id_of(record))
        if not is_due(record) or row is None:
            return row, False
        ours = row.token == (self.number, claim_of(record)[1])
        return row, row.state is State.WAITING and ours

    def has_ended(self, record: Record, suspect: Suspect | None) -> bool:
        row, ours = self.row(record)
        if row is None or ours:
            return False
        journal = self.service.journal
        if not is_due(record) and not journal.stands(record, row, suspect=suspect is not None):
            return False
        if not is_due(record):
            journal.tell(self.number, row)  # a duplicate is answered
        return True

    def may_write(self, record: Record) -> bool:
        """Whether neither the primary key nor the token says no to the end of a run."""
        row, ours = self.row(record)
        if row is None or ours:
            return True
        return not is_due(record) and not self.service.journal.stands(record, row)

    def end_with(self, record: Record, verdict: str) -> None:
        if self.may_write(record):
            self.service.journal.lose(self.number, record, verdict)
            self.service.happened[f"ended {verdict}"] += 1

    def effect(self, record: Record) -> None:
        if not self.may_write(record):
            self.service.happened["commits too late"] += 1
        elif self.service.journal.run(self.number, record):
            self.service.in_order(self, record)

    def gave_up(self, record: Record) -> None:
        row, ours = self.row(record)
        if is_due(record):
            if ours and row is not None:
                self.service.journal.release(self.number, row)
                self.service.happened["given back"] += 1
        elif not self.pool.database_up:
            self.refuse(record)
        else:
            self.service.journal.park(self.number, record)
            self.service.happened["parked"] += 1

    def refuse(self, record: Record) -> None:
        """Nobody can run it here, and no row says so."""
        self.service.happened["refused"] += 1
        status = StatusFields(
            id_of(record), record[TYPE] or "", State.FAILED, 1, DATABASE_UNAVAILABLE, 0,
            at=moment(self.service.now),
        )  # fmt: skip
        self.service.redis.put(self.number, StatusWrite.of(status, bump=True))

    def dies(self, worker: SimWorker) -> None:
        super().dies(worker)
        self.service.redis.gone(self.number, 0.5)

    # What the rest of the instance does

    def once(self, process: Process) -> None:
        """One turn of the loop, with the group's client."""
        pool, commit = self.pool, process.commit
        load = pool.in_hand + commit.held
        self.flow.look(load, pool.in_hand_bytes + commit.held_size, self.now)
        process.poll(min(BATCH, self.flow.batch(load, pool.in_hand_bytes + commit.held_size)))
        process.next(self.flow.room(pool.in_hand, pool.in_hand_bytes).requests)
        self.tend()

    def tend(self) -> None:
        """One turn of the pool, and what it says to the maintenance process."""
        self.now = self.service.now
        self.turn()
        if self.draining:
            self.give_up(self.pool.take_unstarted())
            for record, suspect in self.pool.take_suspects():
                self.must_suspect.pop(self.name(record), None)
                if suspect is None or suspect.verdict is None:
                    self.gave_up(record)
                else:
                    self.end_with(record, suspect.verdict)
        for action in self.pool.ask(self.now):
            self.tell(action)

    def tell(self, action: Action) -> None:
        """Something for the maintenance process."""
        match action:
            case Tell(WantRows() as want):
                self.want = want if want.most else None
            case Tell(RenewClaims() | RenewCalls() as frame):
                if isinstance(frame, RenewClaims):
                    self.owed = frame.claims
                if self.faults and self.rng.random() < 0.6:
                    self.count("the maintenance process renews no leases")
                    return
                self.renew(self.owed)
                self.pool.queue.leases_renewed()
            case Send(_, RenewLeases(claims)):
                self.count("a worker renews leases")
                self.renew(claims)

    def renew(self, claims: Sequence[tuple[str, int]]) -> None:
        """Leases of claims that still stand begin anew."""
        for request_id, order in claims:
            row = self.service.journal.rows[request_id]
            if row.token == (self.number, order) and row.state is State.WAITING:
                row.lease_until = self.service.now + LEASE

    def drain(self) -> None:
        """The shutdown begins: nothing new is started."""
        self.draining = True
        self.pool.queue.claiming = False
        self.act(self.pool.stop())

    def claim(self) -> None:
        """The maintenance process claims what is wanted; the answer may be lost."""
        if self.want is None or not self.service.journal.waiting:
            return
        found = self.service.journal.claim(self.number, self.want, self.turns)
        if not found:
            return
        order, self.want = self.want.order, None
        claimed = [(self._record(row, order), verdict) for row, verdict in found]
        if self.faults and self.rng.random() < 0.1:
            self.count("a claim's answer is lost")
            self.act(self.pool.new_maintenance())
            return
        self.service.happened["claims"] += 1
        self.pool.claimed(order, claimed, self.now)

    @staticmethod
    def _record(row: Row, order: int) -> Record:
        topic, _, _, timestamp, key, value, headers, kind, _ = row.record
        return (topic, NOWHERE, NOWHERE, timestamp, key, value, headers, kind, order)

    def killed(self) -> None:
        """The main process is gone, and its workers with it; what they sent may still land."""
        for worker in self.workers.values():
            if worker.jobs and self.rng.random() < 0.3:
                for index in worker.jobs[0].open:
                    self.effect(worker.jobs[0].frame.records[index])
        self.workers.clear()
        self.service.redis.gone(self.number, 1.0)


class World(group.World):
    """One schedule."""

    def __init__(self, seed: int, *, tracing: bool = False, read_again: bool = False) -> None:
        self.now = pool_world.BEGIN
        self.log: dict[Place, list[Record]] = {}
        self.sent: dict[str, Record] = {}
        self.instances: dict[int, Instance] = {}
        self.last: dict[tuple[int, Hashable], int] = {}
        chance = random.Random(seed)
        protocol = chance.choice(PROTOCOLS)
        super().__init__(
            seed, partitions=2, processes=2, protocol=protocol, read_again=read_again,
            tracing=tracing,
        )  # fmt: skip
        self.log = {place: [] for place in self.places}
        clock = self._clock
        self.redis = Redis(chance, self.count)
        self.journal = self.redis.journal = Journal(chance, self.happened, clock, self.redis.put)
        self.producers = Producers(self.redis, self.journal, clock, self.send)

    def _clock(self) -> float:
        return self.now

    @property
    def seconds(self) -> float:
        """Simulated time so far."""
        return self.now - pool_world.BEGIN

    def start(self) -> Process:
        process = super().start()
        self.instances[process.number] = Instance(self, process.number)
        return process

    def record(self, place: Place, offset: int) -> Record:
        return self.log[place][offset]

    def on_deliver(self, process: Process, records: list[Record]) -> None:
        super().on_deliver(process, records)
        instance = self.instances[process.number]
        pool = instance.pool
        pool.submit(records)
        if instance.faults and pool.in_hand - len(pool.wants) > BOUND:
            raise Violation(f"{pool.in_hand} in hand of {process.number}")

    def kill(self, process: Process) -> None:
        if not process.killed:
            self.instances[process.number].killed()
        super().kill(process)

    # The journal

    def in_order(self, instance: Instance, record: Record) -> None:
        """An effect comes after those of its key that were sent before it."""
        key, where = record[KEY], (record[TOPIC], record[PARTITION])
        if key is None or is_due(record) or (where, record[OFFSET]) in self.rewound:
            return
        before = self.last.get((instance.number, key), -1)
        if record[OFFSET] < before:
            raise Violation(f"{record[OFFSET]} of key {key!r} comes after {before}")
        self.last[instance.number, key] = record[OFFSET]

    # Producers

    def send(self, request_id: str) -> None:
        """A request is sent, perhaps again, to the partition of its key."""
        _, _, _, timestamp, key, value, headers, kind, _ = self.sent[request_id]
        number = int(request_id[1:]) if key is None else key[0]
        topic, partition = place = self.places[number % len(self.places)]
        offset = self.ends[place]
        self.log[place].append(
            (topic, partition, offset, timestamp, key, value, headers, kind, None)
        )
        self.ends[place] += 1

    def unanswered(self) -> list[str]:
        """Requests that have no row."""
        return [request_id for request_id in self.sent if request_id not in self.journal.rows]

    # Schedules

    def run_through(self, steps: int = 250) -> None:
        """Runs the schedule, then lets everything come to its end."""
        with self.producers.on_time():
            for _ in range(steps):
                self.step()
            self.settle()
            self.finish()

    def step(self) -> None:
        """One thing happens somewhere."""
        [happen] = self.random.choices(CHOICES, cum_weights=UPTO)
        process = self.random.choice(self.processes)
        getattr(self, happen.__name__)(process, self.instances[process.number])
        self.follow()

    def turn(self, process: Process, instance: Instance) -> None:
        """A main process turns."""
        if process.runs and not process.fatal:
            instance.once(process)
        elif self.lives(process) and not process.frozen:
            instance.tend()

    def work(self, process: Process, instance: Instance) -> None:
        """A worker does one thing."""
        if instance.workers and not process.frozen:
            instance.now = self.now
            instance.work(self.random.choice(list(instance.workers.values())))

    def produce(self, _process: Process, _instance: Instance) -> None:
        """Requests are sent for the first time."""
        for _ in range(self.random.choice((1, 2, 5))):
            request_id, key = f"r{len(self.sent)}", self.random.choice(KEYS)
            kind, about = self.random.choice(KINDS), self.random.choice(REFERENCES)
            headers: list[tuple[str, bytes | None]] = [("ce_id", request_id.encode())]
            if kind == MERGES:
                headers.append(("reference", about.encode()))
            sent_at = int(self.now * 1000)
            self.sent[request_id] = ("", 0, 0, sent_at, key, b"{}", headers, kind, None)
            self.begin(request_id, kind)

    def begin(self, request_id: str, kind: str) -> None:
        """A producer submits a request and waits for its end."""
        self.producers.submit(request_id, kind, self.random.choice(SILENCES))

    def resend(self, _process: Process, _instance: Instance) -> None:
        """Clients read their statuses, and do not wait any longer."""
        for _ in range(self.producers.look()):
            self.count("sent again")

    def stir(self, _process: Process, _instance: Instance) -> None:
        """Statuses arrive in Redis, or it has a fault of its own."""
        if self.random.random() < 0.3:
            self.redis.strike()
        else:
            self.redis.arrive(self.random.choice((1, 5, 20)))

    def claim(self, process: Process, instance: Instance) -> None:
        """A maintenance process claims; it goes on while main stands still."""
        if not process.killed:
            instance.claim()

    def pass_time(self, _process: Process, _instance: Instance) -> None:
        """Clocks go on, or the machine was asleep."""
        pause = self.random.choice((0.01, 0.3, 1.0, 5.0, 20.0, 90.0))
        if pause >= LEASE / 3:
            self.count("a clock jumps")
        self.now += pause

    def shake(self, _process: Process, _instance: Instance) -> None:
        """Something happens to the group, or to commits on their way."""
        happenings.step(self, but=("_turn", "_produce"))

    def strike(self, process: Process, instance: Instance) -> None:
        """A fault inside one instance."""
        if not process.runs:
            return
        if self.random.random() < 0.5 and instance.workers:
            instance.dies(self.random.choice(list(instance.workers.values())))
        elif instance.pool.database_up:
            self.count("the database is away")
            instance.pool.database(up=False)
            instance.give_up(instance.pool.take_unstarted())

    def lives(self, process: Process) -> bool:
        """It is a member, or has left in peace and ends what it has in hand; nobody killed it."""
        draining = self.instances[process.number].draining
        return (process.alive or draining) and not process.killed

    def follow(self) -> None:
        """A member that stops drains; one whose workers never start ends."""
        for process in self.processes:
            instance = self.instances[process.number]
            if instance.hopeless and process.alive:
                self.count("no worker starts")
                self.kill(process)
            if process.stopping and not instance.draining and self.drains(process):
                instance.drain()
            in_every_state(instance.pool)

    def drains(self, process: Process) -> bool:
        """Whether one that stops puts away what has not started."""
        return True

    # The end

    def settle(self) -> None:
        for instance in self.instances.values():
            instance.faults = False
            instance.act(instance.pool.limit(NO_LIMITS))
        self.redis.calm()
        super().settle()

    def _calm_turn(self) -> None:
        super()._calm_turn()
        self.follow()
        self.now += 2.0
        for process in self.processes:
            instance = self.instances[process.number]
            instance.faults = False
            if self.lives(process):
                instance.pool.database(up=True)
                instance.tend()
                instance.claim()
                instance.work_on()

    def finish(self) -> None:
        """Clients send again what nobody answers, until every request has its end."""
        for _ in range(PATIENCE):
            idle = not any(self.in_hand())
            if idle:
                self.producers.look()
                if not self.producers.calls and not self.journal.waiting:
                    break
                self.skip()
            self._calm_turn()
        else:
            left = [*self.producers.calls], [*self.journal.waiting], [*self.in_hand()]
            raise Violation(f"no end: calls, rows that wait, in hand: {left}")
        self.check_statuses()

    def skip(self) -> None:
        """Nothing happens before a row or a client is due."""
        rows = self.journal.waiting.values()
        due = [row.due if row.token is None else row.lease_until for row in rows]
        self.now = max(self.now, min([*due, *self.producers.due()]))

    def check_statuses(self) -> None:
        """Nothing contradicts the journal once all has come to its end."""
        for process in filter(self.lives, self.processes):
            at_rest(self.instances[process.number].pool)
        self.journal.check()
        self.redis.check()
        for name, answer in self.producers.answers.items():
            self.producers.check(name, answer)

    def in_hand(self) -> list[int]:
        """What living instances have left in hand."""
        return [self.instances[p.number].pool.in_hand for p in self.processes if self.lives(p)]


HAPPENINGS: dict[Callable[[World, Process, Instance], None], float] = {
    World.turn: 30,
    World.work: 32,
    World.produce: 10,
    World.resend: 2,
    World.claim: 3,
    World.stir: 3,
    World.strike: 3,
    World.pass_time: 4,
    World.shake: 16,
}
"""What may happen, and how often of a hundred times."""
CHOICES, UPTO = list(HAPPENINGS), list(accumulate(HAPPENINGS.values()))
