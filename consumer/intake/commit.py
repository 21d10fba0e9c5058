"""Commit first: what may be committed, what a commit's answer means, what may run.

Pure: events and the time in, actions out. Nothing of a batch is delivered before it is known that
its offset and its token are the group's. One commit is open at a time; what is polled meanwhile is
buffered and goes with the next one. The life of a commit:

    (none) --begin--> SENT --ok---------------------------------------------> delivered
                       ^ |                                                     ^
                       | +--error--> ASKED --offset and token are there--------+
                       |             ^ | | |
                       |     UNCLEAR-+ | | +--not there, not ours any more--> dropped
                       |        ^------+ |     (no answer: asked again after a pause)
                       +---- AGAIN <-----+ not there, owned in the same generation

A connection that broke while a commit was open may still hold its bytes. They would put the offset
back when they arrive after a later commit. So nothing more is committed in that membership, but for
last words, whose offset is that of the commit before them: the loop leaves the group and joins it
anew (`Rejoin`), which makes such bytes void, and asks where the partitions that come back stand, in
case it has happened all the same (`OffsetRepair`).

What an answer says of the open commit is `OpenCommit`'s, what becomes of its records then the
`Settlement`'s, and what is told of those that are not finished the `Marks`'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from consumer.intake.assignment import Assignment, Buffer, Run
from consumer.intake.commit_errors import Verdict, judge
from consumer.intake.events import (
    NO_GAPS,
    Action,
    Answered,
    EndService,
    Found,
    Place,
    ReadBack,
    Rejoin,
    SendCommit,
)
from consumer.intake.flow_control import Room
from consumer.intake.marks import Marks
from consumer.intake.offset_metadata import VERSION, UnfinishedGap
from consumer.intake.offset_repair import OffsetRepair
from consumer.intake.open_commit import CommitPhase, OpenCommit, Piece
from consumer.intake.settlement import Settlement
from consumer.intake.unfinished import Unfinished
from feedback.contract.record import OFFSET

BROKEN = "a connection broke while a commit was open"


class Commit:
    """The state machine. Owned by the loop's thread."""

    def __init__(
        self, assignment: Assignment, instance: str, unfinished: Unfinished | None = None
    ) -> None:
        """`unfinished`: None where nothing is read again."""
        self._assignment = assignment
        self._token = f"{VERSION};{instance}-"
        self._number = 0
        self._buffer = Buffer()
        self._open: OpenCommit | None = None
        self._repair = OffsetRepair(self._token)
        self._settlement = Settlement(assignment, self._buffer, self._repair, unfinished)
        self.marks = Marks(unfinished, self._token)
        """What commits tell of what is not finished."""
        self.rejoining = False
        self.stopped = False

    @property
    def counts(self) -> Counter[str]:
        """Records by outcome ("confirmed", "drop:<cause>"), commits, and what went wrong."""
        return self._settlement.counts

    @property
    def lost(self) -> Counter[str]:
        """Kind -> records dropped although their commit may have landed: then nobody runs them."""
        return self._settlement.lost

    @property
    def open_since(self) -> float | None:
        """When the open commit was begun, None where none is open."""
        return None if self._open is None else self._open.since

    @property
    def held(self) -> int:
        """Records that wait for their commit or for its answer."""
        pieces = () if self._open is None else self._open.pieces.values()
        return self._buffer.count + sum(len(piece.records) for piece in pieces)

    @property
    def held_size(self) -> int:
        """The same in bytes."""
        pieces = () if self._open is None else self._open.pieces.values()
        return self._buffer.size + sum(piece.size for piece in pieces)

    # Partitions and records

    def assigned(
        self, places: Sequence[Place], gaps: Mapping[Place, UnfinishedGap] = NO_GAPS
    ) -> list[Action]:
        """Partitions are ours from now on, in new generations."""
        self.counts["assigned"] += 1
        self.marks.assigned(places, gaps)
        # What is buffered of one that we had already would be read again.
        actions = self._settlement.drop_buffered(places, "assigned anew")
        self._assignment.assign(places)
        for place, gap in gaps.items():
            # The client begins at the mark: a log that has it begin below is another one.
            self._assignment.raise_watermark(place, gap.mark - 1)
        self._repair.assigned(places)
        return actions

    def revoked(self, places: Sequence[Place]) -> list[Action]:
        """Partitions are gone. Their share of the open commit stays until that is decided."""
        self.counts["revoked"] += 1
        self._assignment.revoke(places)
        self._repair.revoked(places)
        self.marks.revoked(places)
        return self._settlement.drop_buffered(places, "revoked")

    def last_word(self, places: Sequence[Place]) -> SendCommit | None:
        """Partitions are about to be let go: the commit that says from where to read them.

        Nothing of them is delivered any more. Its answer need not come, and bytes that arrive late
        may undo it: what it tells the next owner is told less precisely by the commit before it.
        """
        ours = [place for place in places if place in self._assignment]
        pieces = {} if self._open is None else self._open.pieces
        opened = {
            place: piece
            for place, piece in pieces.items()
            if piece.generation == self._assignment.generation(place)
        }
        # The group may stand further on than was found: by what an earlier assignment has open, or
        # by bytes of one that were on their way.
        unclear = {place for place in ours if place in pieces or self._repair.awaits(place)}
        told = [place for place in ours if place in opened or place not in unclear]
        offsets, marks = self.marks.last_words(told, opened)
        self._assignment.revoke(places)
        if not offsets:
            return None
        self._number += 1
        self.counts["last words"] += 1
        return SendCommit(offsets, f"{self._token}{self._number};", marks)

    def restarted(self, places: Mapping[Place, int]) -> list[Action]:
        """Partitions have another log now: what was not committed of the old one is gone.

        With each the generation that has ended by it.
        """
        pieces = {} if self._open is None else self._open.pieces
        for place, ended in places.items():
            piece = pieces.get(place)
            if piece is not None and not piece.log_gone:
                piece.log_gone = True
                ours = piece.generation == ended
                piece.records = self.marks.marked(place, piece.records, ours=ours)
        self._repair.restarted(places)
        self.marks.restarted(places)
        return self._settlement.drop_buffered(places, "its log is gone")

    def polled(self, runs: Iterable[Run]) -> int:
        """Buffers records that the assignment let in; returns their size in bytes."""
        return self._buffer.add(self.marks.polled(runs))

    # What a commit became

    def connection_lost(self, *, late: bool = False) -> list[Action]:
        """A connection to the coordinator broke; `late`: maybe before the last answer came."""
        if self._open is not None:
            self._open.broken = True
        return self._rejoin(BROKEN) if late and self._open is None else []

    def answered(self, answer: Answered) -> list[Action]:
        """A commit was answered; answers to others than the one that waits are ignored."""
        commit = self._open
        if commit is None or not commit.waits_for(answer):
            return []
        worst = commit.failed(answer)
        if worst is None:
            landed = self._settlement.landed(commit, list(commit.pieces))
            return [*landed, *self._decided(commit)]
        self.counts[f"error:{worst}"] += 1
        return [ReadBack(tuple(commit.pieces))]

    def read_back(self, found: Found, now: float) -> list[Action]:
        """The group's committed offsets, as far as they could be read."""
        commit = self._open
        if commit is None:
            return self._put_right(found, now)
        if commit.phase is not CommitPhase.ASKED:
            return []
        actions = self._settlement.landed(commit, commit.landed(found))
        for place in list(commit.pieces):
            known = place in found or commit.nowhere or commit.verdict is Verdict.FATAL
            if known or self._is_left_to_others(commit, place):
                # The group stands before it: whoever owns the partition reads it.
                before = place in found and found[place][0] < commit.pieces[place].offset
                read_again = before or commit.nowhere
                actions += self._settlement.not_landed(commit, place, read_again=read_again)
        if not commit.pieces:
            return [*actions, *self._decided(commit)]
        commit.wait(found.keys(), now)
        return actions

    def _is_left_to_others(self, commit: OpenCommit, place: Place) -> bool:
        """Whether nothing of a share would run here, wherever the group stands."""
        ends = self.stopped and commit.verdict is Verdict.REJOIN
        return ends and self._settlement.is_read_by_others(commit.pieces[place])

    def joined_anew(self) -> None:
        """The group had given this member up, and it joins again by itself."""
        if self._open is not None:
            self._open.left = True

    def _decided(self, commit: OpenCommit) -> list[Action]:
        """Every partition of the open commit is delivered or dropped."""
        self._open = None
        if commit.verdict is Verdict.FATAL:
            self.stopped = True
            reason = judge(commit.error).reason
            return [EndService(f"offsets can't be committed: {commit.error}, {reason}")]
        # A member that the group has put out reads what it dropped again once it has joined anew.
        out = commit.verdict is Verdict.REJOIN and bool(self._assignment.places)
        if out and self.stopped:
            self.rejoining = True  # never done: nothing is told in the name of another membership
        if commit.left or not (commit.broken or out):
            return []  # what is on its way in the name of a member that is out is void
        return self._rejoin(BROKEN if commit.broken else commit.error)

    def _rejoin(self, reason: str) -> list[Action]:
        if self.stopped or self.rejoining:
            return []
        self.rejoining = True
        self.counts["rejoins"] += 1
        self._repair.leaving()
        return [Rejoin(reason)]

    # Time

    def next(self, now: float, room: Room) -> list[Action]:
        """What to do now: begin a commit, ask, send again. Only what fits is committed."""
        commit = self._open
        if commit is None:
            if self.stopped or self.rejoining:
                return []
            if self._repair.pending:
                places = self._repair.ask(now)
                return [ReadBack(places)] if places else []
            return self._begin(now, room) or self._tell(now)
        if commit.phase in (CommitPhase.SENT, CommitPhase.ASKED) or now < commit.due:
            return []
        if commit.phase is CommitPhase.UNCLEAR:
            commit.phase = CommitPhase.ASKED
            return [ReadBack(tuple(commit.pieces))]
        return self._send_again(commit)

    def _begin(self, now: float, room: Room) -> list[Action]:
        if not self._buffer.count:
            return []
        pieces: dict[Place, Piece] = {}
        for place, share in self._buffer.take(room).items():
            offset = self.marks.least(place, share.records[-1][OFFSET] + 1)
            pieces[place] = Piece(self._generation(place), offset, share.records, share.size)
        return [self._send(pieces, now)] if pieces else []

    def _tell(self, now: float) -> list[Action]:
        """A commit of what is committed already, where that tells of low marks that have risen."""
        pieces = {
            place: Piece(self._generation(place), offset, [], 0)
            for place, offset in self.marks.risen(now).items()
        }
        return [self._send(pieces, now)] if pieces else []

    def _send(self, pieces: dict[Place, Piece], now: float) -> SendCommit:
        self._number += 1
        commit = self._open = OpenCommit(f"{self._token}{self._number};", pieces, now)
        self.counts["commits"] += 1
        return self._sent(commit)

    def _sent(self, commit: OpenCommit) -> SendCommit:
        offsets = {place: piece.offset for place, piece in commit.pieces.items()}
        return SendCommit(offsets, commit.metadata, self.marks.of(commit.pieces))

    def _send_again(self, commit: OpenCommit) -> list[Action]:
        actions: list[Action] = []
        for place, piece in list(commit.pieces.items()):
            # Revoked during the pause: the broker would let the commit pass all the same.
            if self._assignment.generation(place) != piece.generation:
                # It was clear that it had not landed, or it would not be sent again.
                actions += self._settlement.not_landed(commit, place, read_again=True)
        if not commit.pieces:
            return [*actions, *self._decided(commit)]
        commit.phase = CommitPhase.SENT
        self.counts["sent again"] += 1
        return [*actions, self._sent(commit)]

    # After a rejoin

    def rejoined(self) -> None:
        """Nothing was assigned any more, and the group is being joined anew."""
        self.rejoining = False

    def _put_right(self, found: Found, now: float) -> list[Action]:
        put_back = self._repair.found(found, now)
        if not put_back:
            return []
        self.counts["put right"] += len(put_back)
        pieces: dict[Place, Piece] = {}
        for place, offset in put_back.items():
            self._settlement.put_back(place, offset, found[place][0])
            pieces[place] = Piece(self._generation(place), offset, [], 0)
        return [self._send(pieces, now)]

    # Shutdown

    def stop(self) -> list[Action]:
        """Begins nothing more. What was not committed is left to the next owner."""
        self.stopped = True
        return self._settlement.drop_buffered(self._buffer.places, "stopping")

    def tell_marks(self, now: float) -> list[Action]:
        """The last commit before the group is left: how far it is finished."""
        if self._open is not None or self.rejoining or self._repair.pending:
            return []
        self.marks.going(now)
        return self._tell(now)

    def abandon(self) -> list[Action]:
        """Gives up an open commit whose outcome did not become known in time."""
        commit, self._open = self._open, None
        return [] if commit is None else self._settlement.undecided(commit)

    def _generation(self, place: Place) -> int:
        generation = self._assignment.generation(place)
        if generation is None:
            raise AssertionError(f"{place} has records to commit and is not owned")
        return generation
