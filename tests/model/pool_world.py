"""A world for the pool's decisions: workers, their channels, a journal and faults, by a seed.

Every step is drawn from one seeded generator, so a seed is a schedule. The workers follow what
`processing/worker/inbox.py` and `chunk_run.py` do with chunks, recalls and returns; frames arrive
in their order, however late.
"""

from __future__ import annotations

import random
import signal
from collections import Counter, deque
from collections.abc import Container, Hashable
from dataclasses import dataclass, field

from feedback.contract.record import KEY, OFFSET, TYPE, Record
from processing.ipc.frames import (
    LimitsFound,
    Recall,
    Report,
    Returned,
    RunChunk,
    Stop,
    Suspect,
    ToWorker,
    TypeBounds,
)
from processing.ipc.progress import Running
from processing.pool.actions import Action, Send, Signal, Spawn
from processing.pool.pool import Pool
from processing.settings import PoolSettings
from tests.model.pool_rules import Violation, at_rest, in_every_state

KEYS = (None, b"a", b"b", b"c", b"d")
KINDS = ("quick", "quick", "quick", "slow", "hangs")
BEGIN = 1000.0
BURST = 200
"""Enough for a second chunk to a busy worker."""
TIMEOUT = 3.0
AT_ONCE = 8
"""Things that a worker does in a round, once there are no faults any more."""
NO_LIMITS = LimitsFound(0, None, {}, [])


@dataclass
class Job:
    """A chunk as its worker has it."""

    frame: RunChunk
    unstarted: deque[int] = field(init=False)
    """What may be recalled, in order."""
    open: list[int] = field(default_factory=list)
    """Started, and in no transaction that has ended."""
    returned: list[int] = field(default_factory=list)
    unclear: list[int] = field(default_factory=list)
    left: set[bytes] = field(default_factory=set)
    """Keys of what is unclear or was given back."""

    def __post_init__(self) -> None:
        self.unstarted = deque(range(len(self.frame.records)))


@dataclass
class SimWorker:
    """One worker process, with its two channels."""

    number: int
    ready: bool = False
    leaving: bool = False
    connected: bool = True
    jobs: deque[Job] = field(default_factory=deque)
    returns: int = 0
    running: Running | None = None
    to_worker: deque[ToWorker] = field(default_factory=deque)
    to_main: deque[Returned | Report | str] = field(default_factory=deque)


class World:
    """One schedule."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        """`tracing`: `trace` tells what happens."""
        self.rng = random.Random(seed)
        self.tracing = tracing
        self.pool = Pool(self.settings())
        self.most_wanted = self.pool.crew.wanted
        """Workers, of all the numbers that were set."""
        self.now = BEGIN
        self.workers: dict[int, SimWorker] = {}
        self.faults = True
        self.next_offset = 0
        self.submitted: dict[int, Record] = {}
        self.journal: set[int] = set()
        """Offsets whose effects are committed."""
        self.last: dict[bytes, int] = {}
        """Key -> the last of them."""
        self.given_up: set[int] = set()
        self.must_suspect: dict[Hashable, set[str]] = {}
        """Name -> tokens of chunks in which it was started, with nobody knowing its end."""
        self.trace: list[str] = []
        self.happened: Counter[str] = Counter()

    def settings(self) -> PoolSettings:
        """The pool's."""
        return PoolSettings(workers=self.rng.randint(1, 4), max_in_hand=500)

    # Main

    def act(self, actions: list[Action]) -> None:
        """Does what the pool wants done."""
        for action in actions:
            match action:
                case Spawn(number):
                    self.workers[number] = SimWorker(number)
                    self.most_wanted = max(self.most_wanted, self.pool.crew.wanted)
                    if len(self.workers) > self.most_wanted + 1:
                        raise Violation(f"{len(self.workers)} processes for {self.most_wanted}")
                    self.say("spawn {}", number)
                case Send(number, frame):
                    self.sent(number, frame)
                case Signal(number, what):
                    self.signalled(number, what)
                case _:
                    pass

    def sent(self, number: int, frame: ToWorker) -> None:
        """A frame is on its way; what is unclear may only be sent as a suspect."""
        worker = self.workers.get(number)
        if isinstance(frame, RunChunk):
            if self.tracing:
                offsets = [r[OFFSET] for r in frame.records]
                self.say("send {} to {}: {} {}", frame.number, number, offsets, frame.suspect)
            for record in frame.records if self.must_suspect else ():
                if (tokens := self.must_suspect.get(self.name(record))) is None:
                    continue
                known = () if frame.suspect is None else frame.suspect.tokens
                if not tokens <= set(known):
                    raise Violation(f"{self.name(record)} is sent without its suspicion: {frame}")
        if worker is not None:
            worker.to_worker.append(frame)

    def signalled(self, number: int, what: int) -> None:
        """A worker gets a signal: SIGTERM may help, SIGKILL does."""
        worker = self.workers.get(number)
        self.happened[f"a request is late: {signal.Signals(what).name}"] += 1
        self.say("signal {} to {}", what, number)
        if worker is None:
            return
        if what == signal.SIGKILL:
            self.dies(worker)
        elif worker.jobs and worker.running is not None and self.rng.random() < 0.5:
            self.commit(worker, worker.jobs[0])

    def arrive(self) -> None:
        """The oldest frames of a worker arrive in main."""
        for worker in list(self.workers.values()):
            for _ in range(self.rng.randint(0, 3)):
                if worker.to_main:
                    self.take(worker, worker.to_main.popleft())

    def take(self, worker: SimWorker, frame: Returned | Report | str) -> None:
        self.say("from {}: {}", worker.number, frame)
        match frame:
            case Returned():
                self.pool.returned(worker.number, frame)
            case Report():
                for chunk in self.pool.workers[worker.number].chunks[:1]:
                    open_still = {*frame.unclear}
                    for index, record in chunk.remaining():
                        if index not in open_still:
                            self.must_suspect.pop(self.name(record), None)
                self.act(self.pool.report(worker.number, frame))
            case "connected":
                self.pool.crew.connected(worker.number, (worker.number, str(self.now)))
            case _:
                self.act(self.pool.ready(worker.number))

    def turn(self) -> None:
        """One turn of main's loop."""
        self.arrive()
        looks = {n: w.running for n, w in self.workers.items()}
        self.act(self.pool.tick(looks, self.now))
        if self.pool.probing:
            self.pool.database(up=True)
        self.give_up(self.pool.take_excess(self.now))
        self.act(self.pool.plan(self.now))

    def give_up(self, records: list[Record]) -> None:
        """Records are somebody else's from now on."""
        for record in records:
            if self.name(record) in self.must_suspect:
                raise Violation(f"{self.name(record)} is given up as if it had not started")
            self.gave_up(record)

    # What a world with more than a pool says in other words

    def name(self, record: Record) -> Hashable:
        """What tells a record from others."""
        return record[OFFSET]

    def gave_up(self, record: Record) -> None:
        """A record that has not started is somebody else's."""
        self.given_up.add(record[OFFSET])

    def has_ended(self, record: Record, suspect: Suspect | None) -> bool:
        """What the look-up says of it."""
        if record[OFFSET] not in self.journal:
            return False
        if suspect is None:
            raise Violation(f"{record[OFFSET]} has run, and is run again as if it were fresh")
        return True

    def end_with(self, record: Record, verdict: str) -> None:
        """A suspect's verdict is written."""
        self.journal.add(record[OFFSET])

    # Workers

    def work(self, worker: SimWorker) -> None:
        """A worker does one thing."""
        if not worker.ready:
            if self.faults and self.rng.random() < 0.02:
                self.dies(worker)
            elif self.rng.random() < 0.5 or not self.faults:
                worker.ready = True
                worker.to_main.append("ready")
            return
        while worker.to_worker and self.rng.random() < 0.7:
            self.receive(worker, worker.to_worker.popleft())
        if worker.jobs:
            self.advance(worker, worker.jobs[0])
        elif worker.leaving and not worker.to_worker:
            self.ends(worker)

    def work_on(self) -> None:
        """Every worker does some things."""
        for worker in list(self.workers.values()):
            for _ in range(AT_ONCE):
                self.work(worker)
                if worker.number not in self.workers or not (worker.jobs or worker.to_worker):
                    break

    def receive(self, worker: SimWorker, frame: ToWorker) -> None:
        match frame:
            case RunChunk():
                job = Job(frame)
                worker.jobs.append(job)
                if frame.returns != worker.returns:
                    self.give_back(worker, job)
            case Recall():
                self.recall(worker, self.bound_to_reading(worker))
            case Stop():
                worker.leaving = True
                self.recall(worker, self.bound_to_reading(worker))
            case _:
                pass

    def recall(self, worker: SimWorker, stays: Container[int] = ()) -> None:
        """Gives back what was not started, but what `stays` of the first chunk."""
        for place, job in enumerate(worker.jobs):
            self.give_back(worker, job, () if place else stays)

    def give_back(self, worker: SimWorker, job: Job, stays: Container[int] = ()) -> None:
        if indices := [i for i in job.unstarted if i not in stays]:
            job.unstarted = deque(i for i in job.unstarted if i in stays)
            worker.returns += 1
            worker.to_main.append(Returned(job.frame.number, indices))

    def bound_to_reading(self, worker: SimWorker) -> set[int]:
        """What stays of the first chunk where one is read, as before each transaction: that one,
        and what comes before it of its key."""
        job = worker.jobs[0] if worker.jobs else None
        if job is None or job.open or not job.unstarted or self.rng.random() < 0.5:
            return set()
        self.count("a recall while a record is read")
        last = self.rng.choice(job.unstarted)
        key = job.frame.records[last][KEY]
        if key is None:
            return {last}
        return {i for i in job.unstarted if i <= last and job.frame.records[i][KEY] == key}

    def advance(self, worker: SimWorker, job: Job) -> None:
        """Starts the next request of a chunk, commits, or reports."""
        running = worker.running
        if running is not None and running.deadline is not None and self.hangs(job, running):
            return
        if not worker.connected:
            self.connect(worker, job)
        elif job.unstarted and not (job.open and self.rng.random() < 0.3):
            self.start(worker, job, job.unstarted.popleft())
        elif job.open:
            self.commit(worker, job)
        else:
            self.report(worker, job)

    def connect(self, worker: SimWorker, job: Job) -> None:
        """A worker that has lost its connection tries for another before it does anything."""
        worker.connected = not self.faults or self.rng.random() < 0.5
        if worker.connected:
            worker.to_main.append("connected")
            return
        job.returned, job.unstarted = [*job.unstarted], deque()
        self.report(worker, job)

    def hangs(self, job: Job, running: Running) -> bool:
        record = job.frame.records[running.index or 0]
        return record[TYPE] == "hangs" and self.faults and self.rng.random() < 0.9

    def start(self, worker: SimWorker, job: Job, index: int) -> None:
        record = job.frame.records[index]
        key = record[KEY]
        if key is not None and key in job.left:
            job.returned.append(index)
            return
        if self.has_ended(record, job.frame.suspect):
            return
        if job.frame.suspect is not None and job.frame.suspect.verdict is not None:
            self.end_with(record, job.frame.suspect.verdict)
            return
        job.open.append(index)
        self.must_suspect.setdefault(self.name(record), set()).add(job.frame.token)
        self.check_alone(worker, record)
        worker.running = Running(job.frame.number, index, self.now + TIMEOUT, self.now)

    def check_alone(self, worker: SimWorker, record: Record) -> None:
        """No other worker is in the middle of a request of the same key."""
        key = record[KEY]
        for other in self.workers.values():
            if key is None or other is worker:
                continue
            for job in other.jobs:
                if any(job.frame.records[i][KEY] == key for i in job.open):
                    raise Violation(f"key {key!r} runs in workers {worker.number}, {other.number}")

    def commit(self, worker: SimWorker, job: Job) -> None:
        """The open transaction ends, one way or another."""
        draw = self.rng.random() if self.faults else 1.0
        lost, unclear = draw < 0.05, 0.05 <= draw < 0.15
        if lost or unclear:
            self.count("a transaction is lost" if lost else "a COMMIT is unclear")
        for index in job.open:
            record = job.frame.records[index]
            if lost:
                job.returned.append(index)
                self.must_suspect.pop(self.name(record), None)
            elif unclear:
                job.unclear.append(index)
            if not lost and draw >= 0.1:
                self.effect(record)
            if (lost or unclear) and record[KEY] is not None:
                job.left.add(record[KEY])
        job.open.clear()
        worker.running = None

    def effect(self, record: Record) -> None:
        """Effects are committed: in the order of their keys, and once."""
        offset, key = record[OFFSET], record[KEY]
        if offset in self.journal:
            raise Violation(f"{offset} has two effects")
        if key is not None:
            if self.last.get(key, 0) > offset:
                raise Violation(f"{offset} of key {key!r} comes after {self.last[key]}")
            self.last[key] = offset
        self.journal.add(offset)

    def report(self, worker: SimWorker, job: Job) -> None:
        worker.jobs.popleft()
        if job.returned or job.unclear:
            self.recall(worker)
            worker.returns += 1
        worker.connected &= not (job.unclear or job.returned) or self.rng.random() >= 0.5
        report = Report(job.frame.number, job.returned, job.unclear, {}, {}, worker.connected)
        if job.returned and job.frame.number % 5 == 3:
            self.count("others may be at it")
            none = [0.0 for _ in job.returned]
            report = report._replace(alone=job.returned, held_up=none, elsewhere=job.returned)
        if job.frame.number % 8 == 7:
            report = report._replace(leaving="it has run its number of requests")
        worker.to_main.append(report)

    def dies(self, worker: SimWorker) -> None:
        """A worker is killed; a transaction that it had open may have landed."""
        self.count("a worker dies")
        if worker.jobs and self.rng.random() < 0.3:
            for index in worker.jobs[0].open:
                self.effect(worker.jobs[0].frame.records[index])
        self.ends(worker)

    def ends(self, worker: SimWorker) -> None:
        del self.workers[worker.number]
        while worker.to_main:
            self.take(worker, worker.to_main.popleft())
        self.say("end of {}, running {}", worker.number, worker.running)
        self.act(self.pool.died(worker.number, "gone", worker.running, self.now))

    # What happens

    def happen(self) -> None:
        """Something happens from outside."""
        draw = self.rng.random()
        alive = list(self.workers.values())
        if draw < 0.4:
            self.submit(self.rng.choice((1, 2, 3, 6, 6, 12, 12, BURST)))
        elif draw < 0.5 and alive:
            self.dies(self.rng.choice(alive))
        elif draw < 0.55:
            self.count("another number of workers")
            self.act(self.pool.resize(self.rng.randint(1, 4)))
        elif draw < 0.62:
            each = self.rng.choice((None, 1, 2))
            kind = self.rng.choice(("quick", "slow"))
            paused = [kind] if each is None and self.rng.random() < 0.3 else []
            bounds: TypeBounds = (each, None, None, None)
            types = {} if each is None else {kind: bounds}
            self.count("other limits")
            self.act(self.pool.limit(LimitsFound(0, None, types, paused)))
        elif draw < 0.66:
            self.count("the database is away")
            self.pool.database(up=False)
            self.give_up(self.pool.take_unstarted())
        elif draw < 0.75:
            self.pool.database(up=True)
        self.now += self.rng.choice((0.0, 0.01, 0.05, 0.3, 1.0))

    def submit(self, count: int) -> None:
        records: list[Record] = []
        for _ in range(count):
            self.next_offset += 1
            record: Record = (
                "topic", 0, self.next_offset, 0, self.rng.choice(KEYS), b"{}", [],
                self.rng.choice(KINDS), None,
            )  # fmt: skip
            records.append(record)
            self.submitted[self.next_offset] = record
        self.pool.submit(records)

    def say(self, line: str, *about: object) -> None:
        """Notes what happens, where somebody reads it: `about` goes into the line's braces."""
        if self.tracing:
            self.trace.append(f"{self.now:.2f} {line.format(*about)}")

    def count(self, what: str) -> None:
        """Something happens that is counted."""
        self.happened[what] += 1
        self.say(what)

    # Runs

    @property
    def seconds(self) -> float:
        """Simulated time so far."""
        return self.now - BEGIN

    def run(self, steps: int = 300) -> None:
        """Runs the schedule, then lets everything come to its end."""
        for _ in range(steps):
            self.step()
            in_every_state(self.pool)
        self.faults = False
        self.act(self.pool.limit(NO_LIMITS))
        self.pool.database(up=True)
        for round_ in range(40 * (len(self.submitted) + 50)):
            if not self.pool.in_hand:
                break
            self.now += 0.05 if round_ % 4 else 0.5  # late enough to be recalled, or not
            self.turn()
            self.work_on()
            in_every_state(self.pool)
        self.settled()

    def step(self) -> None:
        """One thing happens somewhere."""
        draw = self.rng.random()
        if draw < 0.15:
            self.happen()
        elif draw < 0.45 or not self.workers:
            self.turn()
        else:
            self.work(self.rng.choice(list(self.workers.values())))

    def settled(self) -> None:
        """In the end everything has its effect once, or was given up."""
        at_rest(self.pool)
        missing = self.submitted.keys() - self.journal - self.given_up
        if missing:
            raise Violation(f"never run: {sorted(missing)}")
