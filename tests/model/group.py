"""A tiny Kafka: one topic, one group, late commits, lost answers, rebalances, zombies.

`World` holds the broker's truth and the processes; each of its methods is one thing that can happen
next. Invariants are checked where records are delivered and commits are sent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.events import (
    Action,
    Answered,
    Deliver,
    Drop,
    EndService,
    Place,
    ReadBack,
    Rejoin,
    SendCommit,
)
from consumer.intake.flow_control import Room
from feedback.contract.record import OFFSET, PARTITION, TOPIC, Record

TOPIC_NAME = "t"
BATCH = 4
GONE = ("not ours any more", "put out of the group", "undecided", "fatal error")
NOT_SENT = ("_WAIT_COORD", "_TIMED_OUT_QUEUE")
"""Errors of the client itself after which nothing of the commit is on its way."""
PROTOCOLS = ("range", "cooperative-sticky", "consumer")


def record(place: Place, offset: int) -> Record:
    return (*place, offset, 0, None, b"{}", [], "a", None)


@dataclass
class Request:
    """An OffsetCommit on its way; a copy stays behind where its connection broke."""

    process: Process
    member: str
    generation: int
    action: SendCommit
    answered: bool = False
    """Nobody waits for this copy's answer any more."""


@dataclass
class Process:
    """One consumer process with its client."""

    number: int
    world: World
    alive: bool = True
    frozen: bool = False
    killed: bool = False
    member: str = ""
    generation: int = 0
    """What the client knows of the group's generation."""
    pending: list[tuple[str, tuple[Place, ...]]] = field(default_factory=list)
    """Rebalance events that the next poll serves."""
    answers: list[Answered] = field(default_factory=list)
    breaks: int = 0
    positions: dict[Place, int] = field(default_factory=dict)
    assignment: Assignment = field(default_factory=Assignment)
    leaving: bool = False
    stopping: bool = False
    fatal: str = ""
    now: float = 0.0
    sent: dict[tuple[Place, int], int] = field(default_factory=dict)
    """The highest offset sent per place and generation of the assignment."""
    token: str = ""
    """The metadata of its last commit: what is dropped undecided went with that."""

    def __post_init__(self) -> None:
        self.commit = Commit(self.assignment, f"p{self.number}")

    @property
    def runs(self) -> bool:
        return self.alive and not self.frozen

    @property
    def at_rest(self) -> bool:
        """Nothing waits to be served, decided or repaired."""
        busy = self.pending or self.answers or self.breaks or self.leaving or self.stopping
        commit = self.commit
        return not (busy or commit.held or commit.open_since is not None or commit._repair.pending)

    # What the loop does

    def poll(self, most: int) -> None:
        """Serves what waits, as one poll does, then takes records."""
        while self.pending:
            kind, places = self.pending.pop(0)
            if kind == "assign":
                self.act(self.commit.assigned(places))
                for place in places:
                    self.positions[place] = self.world.committed.get(place, (0, ""))[0]
                    self.world.epoch[place] = self.world.epoch.get(place, 0) + 1
            else:
                owned = [p for p in places or self.positions if p in self.positions]
                for place in owned:
                    del self.positions[place]
                    if self.world.owners.get(place) == self.member:
                        del self.world.owners[place]
                self.act(self.commit.revoked(owned))
        while self.breaks:
            self.breaks -= 1
            self.commit.connection_lost()
        while self.answers:
            self.act(self.commit.answered(self.answers.pop(0)))
        records: list[Record] = []
        for place, position in list(self.positions.items()):
            if self.stopping:
                break
            upto = min(self.world.ends[place], position + most)
            records += [self.world.record(place, offset) for offset in range(position, upto)]
            self.positions[place] = upto
        self.commit.polled(self.assignment.take(records).runs)

    def next(self, room: int = 1000) -> None:
        self.now += 2.0
        self.act(self.commit.next(self.now, Room(room, 1 << 20, idle=True)))
        if self.leaving and not self.assignment.places and not self.pending:
            self.leaving = False
            self.commit.rejoined()
            self.world.join(self)
        if self.stopping and self.commit.open_since is None:
            self.alive = False
            self.world.leave(self)

    def stop(self) -> None:
        """A shutdown: takes nothing more, and ends once no commit is open."""
        self.stopping = True
        self.act(self.commit.stop())

    def abandon(self) -> None:
        """The open commit was not decided in time."""
        self.act(self.commit.abandon())

    def act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case SendCommit():
                    self.world.on_send(self, action)
                case ReadBack(places):
                    found = self.world.read(places)
                    self.act(self.commit.read_back(found, self.now))
                case Deliver(records):
                    self.world.on_deliver(self, records)
                case Drop(place, count, cause):
                    if cause in GONE:
                        self.world.on_dropped(self, place, count)
                case Rejoin():
                    self.world.leave(self)
                    self.leaving = True
                    self.pending.append(("revoke", ()))  # all of them
                case EndService(message):
                    self.fatal = message


class World:
    """The broker, the group, and what has happened."""

    def __init__(
        self, seed: int, *, partitions: int = 3, processes: int = 3, protocol: str = PROTOCOLS[1]
    ) -> None:
        self.random = random.Random(seed)
        self.protocol = protocol
        self.cooperative = protocol != PROTOCOLS[0]
        self.happened: Counter[str] = Counter()
        self.trace: list[str] = []
        self.places: list[Place] = [(TOPIC_NAME, n) for n in range(partitions)]
        self.ends = dict.fromkeys(self.places, 0)
        self.committed: dict[Place, tuple[int, str]] = {}
        self.landed: set[tuple[Place, int, str]] = set()
        self.epoch: dict[Place, int] = {}
        self.rewound: set[tuple[Place, int]] = set()
        self.dispatched: dict[tuple[Place, int], int] = {}
        self.batches: dict[tuple[int, str], dict[Place, list[int]]] = {}
        """Offsets that went with each commit of each process."""
        self.maybe_lost: set[tuple[Place, int]] = set()
        self.generation = 0
        self.members: dict[str, Process] = {}
        self.owners: dict[Place, str] = {}
        self.target: dict[Place, str] | None = None
        """The assignment that a rebalance under way leads to."""
        self.joined = 0
        self.requests: list[Request] = []
        self.read_fails = False
        self.breaks_reported = True
        self.processes: list[Process] = []
        for _ in range(processes):
            self.start()
        self.rebalance_fully()

    def record(self, place: Place, offset: int) -> Record:
        """What stands in a partition."""
        return record(place, offset)

    @property
    def seconds(self) -> float:
        """Simulated time so far."""
        return max(process.now for process in self.processes)

    def say(self, line: str, counted: str | None = None) -> None:
        """Notes what happens."""
        self.trace.append(line)
        if counted:
            self.happened[counted] += 1

    def run(self, steps: int, happen: Callable[[World], str]) -> None:
        """Runs a schedule, then lets everything come to its end."""
        for _ in range(steps):
            what = happen(self)
            self.say(what, what)
        self.settle()

    # Members

    def start(self) -> Process:
        process = Process(len(self.processes), self)
        self.processes.append(process)
        self.join(process)
        return process

    def join(self, process: Process) -> None:
        self.joined += 1
        process.member = f"m{self.joined}"
        process.generation = -1
        self.members[process.member] = process
        self.rebalance()

    def leave(self, process: Process) -> None:
        if self.members.pop(process.member, None) is not None:
            self.owners = {p: m for p, m in self.owners.items() if m != process.member}
            self.rebalance()

    def rebalance(self) -> None:
        """A rebalance begins: members are told what to give up."""
        names = sorted(self.members)
        self.target = {
            place: names[(n + self.joined) % len(names)] for n, place in enumerate(self.places)
        } if names else {}  # fmt: skip
        if self.cooperative:
            self.generation += 1  # members hear of it one by one: their commits fail meanwhile
        for name, process in self.members.items():
            has = [place for place, owner in self.owners.items() if owner == name]
            gives = [p for p in has if self.target[p] != name] if self.cooperative else has
            if gives:
                process.pending.append(("revoke", tuple(gives)))

    def hear(self, process: Process) -> None:
        """A client learns of the group's generation, or that it was put out."""
        if process.member in self.members:
            if not process.pending or self.cooperative:
                process.generation = self.generation
        elif process.runs and not process.leaving:
            process.pending.append(("lost", ()))  # all of them
            process.poll(0)
            if not process.leaving:  # else it joins once it has left
                self.join(process)

    def complete(self, *, evict: bool) -> None:
        """Ends the rebalance once everybody has given up; those who don't are put out."""
        if self.target is None:
            return
        late = [p for p in self.members.values() if any(k != "assign" for k, _ in p.pending)]
        silent = [p for p in self.members.values() if not p.runs]
        if (late or silent) and not evict:
            return
        if late or silent:
            for process in (*late, *silent):
                self.members.pop(process.member, None)
            self.owners = {p: m for p, m in self.owners.items() if m in self.members}
            for process in self.members.values():
                process.pending = [e for e in process.pending if e[0] == "assign"]
            self.rebalance()
            return
        self.generation += 1
        for name, process in self.members.items():
            process.generation = self.generation
            new = [
                place for place, owner in self.target.items()
                if owner == name and not (self.cooperative and self.owners.get(place) == name)
            ]  # fmt: skip
            if new:
                process.pending.append(("assign", tuple(new)))
        self.owners, self.target = dict(self.target), None

    def rebalance_fully(self) -> None:
        for _ in range(50):
            for process in self.processes:
                if process.runs:
                    self.hear(process)
                    process.poll(0)
            self.complete(evict=True)
            if self.target is None:
                break

    # Commits

    def on_send(self, process: Process, action: SendCommit) -> None:
        key = (process.number, action.metadata)
        opened = process.commit._open
        assert opened is not None
        if opened.tries == 0:
            assert key not in self.batches, "a token was used twice"
            self.batches[key] = {
                place: [r[OFFSET] for r in piece.records] for place, piece in opened.pieces.items()
            }
        for place, offset in action.offsets.items():
            generation = process.assignment.generation(place)
            assert generation is not None, "committed a partition that is not owned"
            before = process.sent.get((place, generation), -1)
            assert offset >= before, f"I6: {place} sent {offset} after {before}"
            process.sent[place, generation] = offset
        process.token = action.metadata
        self.say(f"{process.number} commits {action.offsets} with {action.metadata}")
        self.requests.append(Request(process, process.member, process.generation, action))

    def land(self, request: Request, *, answer: bool = True) -> None:
        """The broker takes a request; its answer may be lost with the connection."""
        self.requests.remove(request)
        error, epochs = None, self.protocol == PROTOCOLS[2]
        if request.member not in self.members:
            error = "FENCED_MEMBER_EPOCH" if epochs else "UNKNOWN_MEMBER_ID"
        elif request.generation != self.generation:
            error = "STALE_MEMBER_EPOCH" if epochs else "ILLEGAL_GENERATION"
        self.say(f"the commit {request.action.metadata} of {request.process.number}: {error}")
        if error is None:
            for place, offset in request.action.offsets.items():
                before = self.committed.get(place, (0, ""))[0]
                if offset < before:
                    self.rewound |= {(place, o) for o in range(offset, before)}
                self.committed[place] = (offset, request.action.metadata)
                self.landed.add((place, offset, request.action.metadata))
        if not request.answered and answer:
            self._answer(request, error)
        elif not request.answered:
            self.break_connection(request)

    def fail(self, request: Request, code: str, *, one: bool, landed: bool) -> None:
        """The client hears an error, for one partition or all, whether or not it landed.

        An error of the client itself (with an underscore) leaves the bytes on their way.
        """
        if request.answered:
            return
        request.answered = True
        self.say(f"{request.process.number} is told {code}", code)
        if code in NOT_SENT:
            self.requests.remove(request)
        elif not code.startswith("_"):
            if landed:
                self.land(request)
            else:
                self.requests.remove(request)
        self._answer(request, code, one=one)

    def break_connection(self, request: Request) -> None:
        """The client sends the request again on a new connection; the old bytes stay about."""
        if request.answered:
            return
        request.answered = True
        if self.breaks_reported:
            request.process.breaks += 1
        # A retry is the same bytes: same member, same generation.
        self.requests.append(
            Request(request.process, request.member, request.generation, request.action)
        )

    def _answer(self, request: Request, error: str | None, *, one: bool = False) -> None:
        places = list(request.action.offsets)
        wrong = places[:1] if one else places
        request.process.answers.append(
            Answered(
                request.action.metadata,
                error if len(wrong) == len(places) else None,
                {place: error if place in wrong else None for place in places},
            )
        )

    def read(self, places: tuple[Place, ...]) -> dict[Place, tuple[int, str | None]]:
        if self.read_fails and self.random.random() < 0.5:
            places = places[1:] if self.random.random() < 0.5 else ()
        return {place: self.committed.get(place, (-1001, "")) for place in places}

    # Invariants

    def on_deliver(self, process: Process, records: list[Record]) -> None:
        self.say(f"{process.number} runs {len(records)}")
        for item in records:
            place, offset = (item[TOPIC], item[PARTITION]), item[OFFSET]
            ours = [
                o for p, o, m in self.landed
                if p == place and m.startswith(f"1;p{process.number}-") and o > offset
            ]  # fmt: skip
            assert ours, f"I5: {place} {offset} delivered without a commit of ours"
            key = (place, offset)
            if key not in self.rewound:
                assert key not in self.dispatched, f"I4: {key} delivered twice"
            self.dispatched[key] = process.number
            self.maybe_lost.discard(key)

    def on_dropped(self, process: Process, place: Place, count: int) -> None:
        offsets = self.batches[process.number, process.token][place]
        assert len(offsets) == count, f"{place} dropped {count} of {offsets}"
        self._lost(place, offsets)

    def _lost(self, place: Place, offsets: list[int]) -> None:
        """They went with a commit that landed, or may land yet."""
        self.maybe_lost |= {
            (place, offset) for offset in offsets if (place, offset) not in self.dispatched
        }

    def kill(self, process: Process) -> None:
        process.alive, process.killed = False, True
        batch = self.batches.get((process.number, process.token), {})
        for place, offsets in batch.items():
            self._lost(place, offsets)

    def settle(self) -> None:
        """Faults end; everything comes to rest; the books are checked."""
        self.read_fails = False
        for process in self.processes:
            process.frozen = False
        if not any(p.alive and not p.fatal and not p.stopping for p in self.processes):
            self.start()
        quiet = 0
        for _ in range(300):
            self._calm_turn()
            quiet = quiet + 1 if self.at_rest() else 0
            if quiet > 2:
                break
        self._check_books()

    def at_rest(self) -> bool:
        """Whether nothing is on its way, and everything that was sent was taken."""
        if self.requests or self.target is not None:
            return False
        taken = set()
        for process in self.processes:
            if (process.alive and not process.fatal) != (process.member in self.members):
                return False
            if process.alive and not process.fatal:
                if not process.at_rest:
                    return False
                taken |= {p for p, at in process.positions.items() if at == self.ends[p]}
        return len(taken) == len(self.places)

    def _calm_turn(self) -> None:
        for request in list(self.requests):
            self.land(request)
        for process in self.processes:
            if process.alive and not process.fatal:
                self.hear(process)
                process.poll(BATCH)
                process.next()
            elif process.member in self.members:
                self.leave(process)
        self.complete(evict=True)

    def _check_books(self) -> None:
        landed = {(p, m) for p, _, m in self.landed}
        carried = {
            (place, offset)
            for (_, metadata), batch in self.batches.items()
            for place, offsets in batch.items()
            if (place, metadata) in landed
            for offset in offsets
        }
        produced = {(place, offset) for place, end in self.ends.items() for offset in range(end)}
        for key in produced - self.dispatched.keys():
            assert key in self.maybe_lost, f"{key} was never run, and nobody dropped it"
            assert key in carried, f"{key} was lost, though no commit with it landed"
        if self.breaks_reported:
            assert not self.rewound, f"offsets were put back: {self.rewound}"
