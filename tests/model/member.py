"""The members of a simulated group: processes with their clients, as `group.World` has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from consumer.intake.unfinished import Unfinished
from consumer.intake.unknown_starts import UnknownStarts
from feedback.contract.record import Record
from tests.model.commit_answers import ENDING

if TYPE_CHECKING:
    from tests.model.group import World

GONE = ("not ours any more", "put out of the group", "undecided", "fatal error")


@dataclass
class Request:
    """An OffsetCommit on its way; a copy stays behind where its connection broke."""

    process: Process
    member: str
    generation: int
    action: SendCommit
    answered: bool = False
    """Nobody waits for this copy's answer any more."""
    last_word: bool = False
    """Nobody ever did: it is what a member says as it lets partitions go."""


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
    unknown: UnknownStarts = field(default_factory=UnknownStarts)
    leaving: bool = False
    stopping: bool = False
    fatal: str = ""
    now: float = 0.0
    sent: dict[tuple[Place, int], int] = field(default_factory=dict)
    """The highest offset sent per place and generation of the assignment."""
    token: str = ""
    """The metadata of its last commit: what is dropped undecided went with that."""

    hand: dict[tuple[Place, int], Record] = field(default_factory=dict)
    """What was delivered and is not finished, where marks are told."""
    last_told: bool = False
    abandoned: bool = False
    """It gave up an open commit: it leaves at once, and says no last word."""

    def __post_init__(self) -> None:
        unfinished = Unfinished() if self.world.read_again else None
        self.commit = Commit(self.assignment, f"p{self.number}", unfinished)

    @property
    def runs(self) -> bool:
        return self.alive and not self.frozen

    @property
    def at_rest(self) -> bool:
        """Nothing waits to be served, decided or repaired."""
        busy = self.pending or self.answers or self.breaks or self.leaving or self.stopping
        commit = self.commit
        busy = bool(busy or self.unknown.places or commit.held)
        return not (busy or commit.open_since is not None or commit._repair.pending)

    # What the loop does

    def poll(self, most: int) -> None:
        """Serves what waits, as one poll does, then takes records."""
        if self.pending:
            self._rebalance()
        while self.breaks:
            self.breaks -= 1
            self.commit.connection_lost()
        while self.answers:
            self._hear(self.answers.pop(0))
        records: list[Record] = []
        for place, position in self.positions.items():
            upto = min(self.world.ends[place], position + most)
            if upto > position and not self.stopping:
                records += [self.world.record(place, offset) for offset in range(position, upto)]
                self.positions[place] = upto
        if records:
            self.commit.polled(self.assignment.take(records).runs)

    def _hear(self, answer: Answered) -> None:
        """An answer to a commit; after an error that nothing can mend this member ends."""
        opened = self.commit._open
        waited = opened is not None and opened.waits_for(answer)
        self.act(self.commit.answered(answer))
        if waited and any(code in ENDING for code in (answer.error, *answer.errors.values())):
            assert self.fatal, f"{self.number} goes on after {answer}"

    def _rebalance(self) -> None:
        while self.pending:
            kind, places = self.pending.pop(0)
            if kind == "assign":
                self._begin(places)
            else:
                ours = (*self.positions, *self.unknown.places)
                owned = [p for p in places or ours if p in ours]
                if kind == "revoke":
                    self.world.let_go(self, owned)
                else:
                    self.world.lost(self, [p for p in owned if p in self.assignment])
                for place in owned:
                    self.positions.pop(place, None)
                    if self.world.owners.get(place) == self.member:
                        del self.world.owners[place]
                self.unknown.revoked(owned)
                self.act(self.commit.revoked(owned))

    def _begin(self, places: tuple[Place, ...]) -> None:
        """Those of partitions that are ours for which somebody can say where."""
        unknown = self.world.unknown(places)
        self.unknown.found(places, unknown, self.now)
        begun = [place for place in places if place not in unknown]
        gaps = self.world.gaps(begun)
        self.act(self.commit.assigned(begun, gaps))
        for place in begun:
            committed = self.world.committed.get(place, (0, ""))[0]
            self.positions[place] = gaps[place].mark if place in gaps else committed

    def next(self, room: int = 1000) -> None:
        self.now += 2.0
        due = self.unknown.due(self.now)
        if due and not (self.commit.stopped or self.commit.rejoining):
            self._begin(due)
        if actions := self.commit.next(self.now, Room(room, 1 << 20)):
            self.act(actions)
        gone = not (self.assignment.places or self.unknown.places or self.pending)
        if self.leaving and gone:
            self.leaving = False
            self.commit.rejoined()
            self.world.leave(self)
            self.world.join(self)
        if self.stopping and self.commit.open_since is None and not self.last_told:
            self.last_told = True
            if self.world.read_again and not self.leaving:
                self.world.give_up(self, self.assignment.places)
                self.act(self.commit.tell_marks(self.now))
        if self.stopping and self.commit.open_since is None:
            self.alive = False
            self.world.leave(self)

    def stop(self) -> None:
        """A shutdown: takes nothing more, and ends once no commit is open."""
        self.stopping = True
        self.act(self.commit.stop())

    def abandon(self) -> None:
        """The open commit was not decided in time."""
        self.last_told = self.abandoned = True
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
                    self.leaving = True
                    self.pending.append(("revoke", ()))  # all of them
                case EndService(message):
                    self.fatal = message
                    self.world.count("a commit's error ends a member")
                    self.stop()
