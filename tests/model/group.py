"""A tiny Kafka: one topic, one group, late commits, lost answers, rebalances, zombies.

`World` holds the broker's truth and the processes; each of its methods is one thing that can happen
next. Invariants are checked where records are delivered and commits are sent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from consumer.intake.commit_errors import NOTHING_SAID
from consumer.intake.events import Answered, Place, SendCommit
from consumer.intake.offset_metadata import UnfinishedGap, gap_of, metadata_of
from feedback.contract.record import (
    OFFSET,
    PARTITION,
    TOPIC,
    Record,
    is_read_again,
    may_have_begun,
)
from tests.model.commit_answers import CLASSIC, EPOCHS
from tests.model.group_books import check_books
from tests.model.member import Process, Request

TOPIC_NAME = "t"
BATCH = 4
NOT_SENT = ("_WAIT_COORD", "_TIMED_OUT_QUEUE", "_FATAL")
"""Errors of the client itself after which nothing of the commit is on its way."""
PROTOCOLS = ("range", "cooperative-sticky", "consumer")


def record(place: Place, offset: int) -> Record:
    return (*place, offset, 0, None, b"{}", [], "a", None)


class World:
    """The broker, the group, and what has happened."""

    def __init__(
        self,
        seed: int,
        *,
        partitions: int = 3,
        processes: int = 3,
        protocol: str = PROTOCOLS[1],
        read_again: bool = False,
        tracing: bool = False,
    ) -> None:
        """`tracing`: `trace` tells what happens."""
        self.random, self.tracing = random.Random(seed), tracing
        self.read_again = read_again
        """Marks are told, and what lies between them and the committed offset is read again."""
        self.finished: set[tuple[Place, int]] = set()
        self.cut_short: set[tuple[Place, int]] = set()
        """In the hand of a process that was killed."""
        self.left_alone: set[tuple[Place, int]] = set()
        """Read again as often as is allowed."""
        self.gone_with: set[tuple[Place, int]] = set()
        """What a process had when it was killed, or dropped although it may have been its."""
        self.passed: dict[tuple[Place, int], int] = {}
        """Partition and process -> the highest mark of its that landed."""
        self.protocol = protocol
        self.cooperative = protocol != PROTOCOLS[0]
        self.happened: Counter[str] = Counter()
        self.trace: list[str] = []
        self.places: list[Place] = [(TOPIC_NAME, n) for n in range(partitions)]
        self.ends = dict.fromkeys(self.places, 0)
        self.committed: dict[Place, tuple[int, str]] = {}
        self.landed: set[tuple[Place, str]] = set()
        """Partitions and tokens of commits that the broker took."""
        self.highest: dict[tuple[Place, int], int] = {}
        """Partition and process -> the highest offset of its that landed."""
        self.sound: dict[Place, int] = {}
        """No mark below it can be wrong any more."""
        self.rewound: set[tuple[Place, int]] = set()
        self.dispatched: dict[tuple[Place, int], int] = {}
        self.run_again: set[tuple[Place, int]] = set()
        """Delivered as what somebody else had taken before."""
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
        self.starts_fail = False
        """Some partitions have no leader, or a committed offset that cannot be read."""
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

    def say(self, line: str, *about: object) -> None:
        """Notes what happens, where somebody reads it: `about` goes into the line's braces."""
        if self.tracing:
            self.trace.append(line.format(*about))

    def count(self, what: str) -> None:
        """Something happens that is counted."""
        self.happened[what] += 1
        self.say(what)

    def run(self, steps: int, happen: Callable[[World], None]) -> None:
        """Runs a schedule, then lets everything come to its end."""
        for _ in range(steps):
            happen(self)
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
            self.count("members are put out")
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
            if not process.fatal:  # its last commit may lie below one that was refused for good
                assert offset >= before, f"I6: {place} sent {offset} after {before}"
            process.sent[place, generation] = offset
        process.token = action.metadata
        self.say("{} commits {} with {}", process.number, action.offsets, action.metadata)
        self.requests.append(Request(process, process.member, process.generation, action))

    def land(self, request: Request, *, answer: bool = True) -> None:
        """The broker takes a request; its answer may be lost with the connection."""
        self.requests.remove(request)
        error, epochs = None, self.protocol == PROTOCOLS[2]
        if request.member not in self.members:
            error = (EPOCHS if epochs else CLASSIC)[0]
        elif request.generation != self.generation:
            error = (EPOCHS if epochs else CLASSIC)[1]
        token, number = request.action.metadata, request.process.number
        self.say("the commit {} of {}: {}", token, number, error)
        if request.answered:
            self.happened["a commit arrives whose sender has given up"] += not request.last_word
        elif error is not None:
            self.happened[f"error {error}"] += 1
        if error is None:
            for place, offset in request.action.offsets.items():
                before = self.committed.get(place, (0, ""))[0]
                if offset < before:
                    self._put_back(request, {(place, o) for o in range(offset, before)})
                self.committed[place] = (offset, self.metadata(place, request))
                self.landed.add((place, token))
                self.highest[place, number] = max(offset, self.highest.get((place, number), 0))
        if not request.answered and answer:
            self._answer(request, error)
        elif not request.answered:
            self.count("the answer to a commit is lost")
            self.break_connection(request)

    def _put_back(self, request: Request, offsets: set[tuple[Place, int]]) -> None:
        """A commit lands below where the group stands."""
        last = (request.process.number, request.action.metadata) not in self.batches
        if request.process.fatal or (last and not offsets & self.dispatched.keys()):
            taken = sorted(offsets & self.dispatched.keys())
            assert not taken, f"what is put back by who ends was taken: {taken}"
            self.happened["put back, and taken by nobody"] += 1
        else:
            self.rewound |= offsets

    def fail(self, request: Request, code: str, *, one: bool, landed: bool) -> None:
        """The client hears an error, for one partition or all, whether or not it landed.

        An error of the client itself (with an underscore) leaves the bytes on their way.
        """
        if request.answered:
            return
        request.answered = True
        self.happened[f"error {code}"] += 1
        self.say("{} is told {}", request.process.number, code)
        if code in NOT_SENT:
            self.requests.remove(request)
        elif not code.startswith("_"):
            if landed:
                self.land(request)
            else:
                self.requests.remove(request)
        self._answer(request, code, one=one)

    # Marks

    def metadata(self, place: Place, request: Request) -> str:
        """What is committed with an offset; its mark must be above nothing that is unfinished."""
        action, key = request.action, (place, request.process.number)
        told = action.marks.get(place)
        mark = 0 if told is None else told.offset
        if mark > action.offsets[place]:
            raise AssertionError(f"the mark {mark} of {place} lies above {action.offsets[place]}")
        for offset in range(self.sound.get(place, 0), mark):
            if (place, offset) not in self.finished:
                # Those that were read again often enough are let go with the mark.
                assert self._worn_out(place, offset), f"the mark {mark} is above {place} {offset}"
        self.sound[place] = max(mark, self.sound.get(place, 0))
        self.passed[key] = max(mark, self.passed.get(key, 0))
        return metadata_of(action.metadata, told)

    def _worn_out(self, place: Place, offset: int) -> bool:
        if (place, offset) not in self.left_alone:
            gap = self._gap(place)
            if gap is None or not gap.mark <= offset < gap.worn_to:
                return False
            self.left_alone |= {(place, o) for o in range(gap.mark, gap.worn_to)}
        return True

    def _gap(self, place: Place) -> UnfinishedGap | None:
        return gap_of(*self.committed.get(place, (0, "")))

    def unknown(self, places: Sequence[Place]) -> tuple[Place, ...]:
        """Those of partitions for which nobody can say where to begin."""
        found = tuple(p for p in places if self.starts_fail and self.random.random() < 0.6)
        if found:
            self.count("nobody can say where to begin")
        return found

    def gaps(self, places: Iterable[Place]) -> dict[Place, UnfinishedGap]:
        """What a new owner reads again."""
        if not self.read_again:
            return {}
        found = {place: self._gap(place) for place in places}
        return {place: gap for place, gap in found.items() if gap is not None}

    def end_some(self, process: Process, most: int) -> None:
        """What a process has in hand comes to its end."""
        done = list(process.hand.items())[:most]
        for key, _ in done:
            del process.hand[key]
            self.finished.add(key)
        process.commit.marks.finished([item for _, item in done])

    def give_up(self, process: Process, places: Iterable[Place]) -> None:
        """What has not started of these partitions is left to their next owner."""
        wanted, unstarted = process.commit.marks.read_from(places), []
        for key, item in list(process.hand.items()):
            gone = key[0] in wanted and key[1] >= wanted[key[0]]
            if gone and self.random.random() < 0.7:
                unstarted.append(item)
                del process.hand[key]
        process.commit.marks.given_up(unstarted)

    def let_go(self, process: Process, places: list[Place]) -> None:
        """Partitions are let go in peace: the last commit is not waited for, and may be lost."""
        if not self.read_again or process.abandoned:
            return
        self.give_up(process, places)
        self.end_some(process, self.random.choice((0, 1, 5)))
        word = process.commit.last_word(places)
        if word is None:
            return
        self.happened["last words"] += 1
        self.say("{} says its last word {}, {}", process.number, word.offsets, word.marks)
        self.happened["last words of who has lost a connection"] += process.leaving
        request = Request(process, process.member, process.generation, word, True, last_word=True)
        self.requests.append(request)
        if self.random.random() < 0.5:
            self.land(request)

    def lost(self, process: Process, places: Sequence[Place]) -> None:
        """Partitions are gone before anything could be said."""

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
        if error == NOTHING_SAID:
            request.process.answers.append(Answered(None, None, {}))
            return
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
        self.say("{} runs {}", process.number, len(records))
        for item in records:
            place, offset = (item[TOPIC], item[PARTITION]), item[OFFSET]
            ours = self.highest.get((place, process.number), 0)
            assert ours > offset, f"I5: {place} {offset} delivered without a commit of ours"
            key = (place, offset)
            if self.read_again:
                assert key not in process.hand, f"{key} is in hand twice"
                # What a mark has passed is its teller's, whoever owns the partition.
                passed = self.passed.get((place, process.number), 0)
                owned = place in process.assignment or offset < passed
                assert owned, f"{key} is delivered to who does not own it"
                self.happened["read again"] += is_read_again(item)
                if is_read_again(item) and not may_have_begun(item):
                    self.happened["read again, not begun"] += 1
                    self._check_not_begun(key)
                process.hand[key] = item
            if is_read_again(item):
                self.run_again.add(key)
            elif key not in self.rewound and key in self.dispatched:
                # Who was put out while it stood still goes on with what it had committed, unless
                # its client knows. The next owner may have been faster: the journal decides.
                late = key in self.run_again and process.member not in self.members
                assert late, f"I4: {key} delivered twice"
                self.happened["run late by who was put out"] += 1
            self.dispatched[key] = process.number
            self.maybe_lost.discard(key)

    def _check_not_begun(self, key: tuple[Place, int]) -> None:
        """Of what is delivered as not begun nobody may have entered the handler in vain."""
        vain = key in self.cut_short or any(key in process.hand for process in self.processes)
        assert not vain or key in self.finished, f"{key} may have been begun before"

    def on_dropped(self, process: Process, place: Place, count: int) -> None:
        offsets = self.batches[process.number, process.token][place]
        assert len(offsets) == count, f"{place} dropped {count} of {offsets}"
        self._lost(place, offsets)

    def _lost(self, place: Place, offsets: list[int]) -> None:
        """They went with a commit that landed, or may land yet."""
        self.gone_with |= {(place, offset) for offset in offsets}
        self.maybe_lost |= {
            (place, offset) for offset in offsets if (place, offset) not in self.dispatched
        }

    def kill(self, process: Process) -> None:
        process.alive, process.killed = False, True
        self.cut_short.update(process.hand)
        self.gone_with.update(process.hand)
        process.hand.clear()
        batch = self.batches.get((process.number, process.token), {})
        for place, offsets in batch.items():
            self._lost(place, offsets)

    def settle(self) -> None:
        """Faults end; everything comes to rest; the books are checked."""
        self.read_fails = self.starts_fail = False
        for process in self.processes:
            process.frozen = False
        quiet = 0
        for _ in range(300):
            self._calm_turn()
            quiet = quiet + 1 if self.at_rest() else 0
            if quiet > 1:
                break
        self._check_books()

    def at_rest(self) -> bool:
        """Whether nothing is on its way, and everything that was sent was taken."""
        if self.requests or self.target is not None or any(p.hand for p in self.processes):
            return False
        taken = set()
        for process in self.processes:
            if process.alive != (process.member in self.members):
                return False
            if process.alive:
                if not process.at_rest:
                    return False
                taken |= {p for p, at in process.positions.items() if at == self.ends[p]}
        return len(taken) == len(self.places)

    def _calm_turn(self) -> None:
        if not any(p.alive and not p.stopping for p in self.processes):
            self.start()
        for request in list(self.requests):
            self.land(request)
        for process in self.processes:
            if process.hand:
                self.end_some(process, 1000)
            if process.alive:
                self.hear(process)
                process.poll(4 * BATCH)
                process.next()
            elif process.member in self.members:
                self.leave(process)
        self.complete(evict=True)

    def _check_books(self) -> None:
        check_books(self)
