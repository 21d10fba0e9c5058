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
back when they arrive after a later commit. So nothing more is committed in that membership: the
loop leaves the group and joins it anew (`Rejoin`), which makes such bytes void, and asks where the
partitions that come back stand, in case it has happened all the same (`OffsetRepair`).
"""

# long: one state machine, whose events and states are read side by side
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from consumer.intake.assignment import Assignment, Buffer, Run
from consumer.intake.commit_errors import NOTHING_SAID, TABLE, UNKNOWN_LIMIT, Verdict, judge
from consumer.intake.events import (
    NO_GAPS,
    Action,
    Answered,
    Deliver,
    Drop,
    EndService,
    Found,
    Place,
    ReadBack,
    Rejoin,
    SendCommit,
)
from consumer.intake.flow_control import Room
from consumer.intake.offset_metadata import VERSION, UnfinishedGap, token_of
from consumer.intake.offset_repair import UNREAD_PAUSES, OffsetRepair
from consumer.intake.unfinished import Unfinished
from feedback.backoff import Backoff
from feedback.contract.record import OFFSET, Record, is_read_again, kind_of

AGAIN_PAUSES = Backoff(0.05, 1.0)
"""Seconds before a commit that did not land is sent again, by the number of tries."""
BROKEN = "a connection broke while a commit was open"
TELL_PAUSE = 1.0
"""Seconds between two commits that only tell low marks."""


class CommitPhase(Enum):
    """Where the open commit stands."""

    SENT = "sent"
    ASKED = "asked"
    UNCLEAR = "unclear"
    AGAIN = "again"


@dataclass(slots=True)
class Piece:
    """One partition's share of the open commit. Without records it only repairs an offset."""

    generation: int
    offset: int
    records: list[Record]
    size: int
    mark: tuple[int, int] | None = None
    """As in `SendCommit`."""


@dataclass(slots=True)
class Open:
    """The commit whose outcome is not known for all of its partitions yet."""

    metadata: str
    pieces: dict[Place, Piece]
    since: float
    phase: CommitPhase = CommitPhase.SENT
    due: float = 0.0
    tries: int = 0
    unknown_errors: int = 0
    verdict: Verdict = Verdict.AGAIN
    error: str = ""
    broken: bool = False
    """A connection was lost while it was open: some of its bytes may still be on their way."""


class Commit:
    """The state machine. Owned by the loop's thread."""

    def __init__(
        self, assignment: Assignment, instance: str, unfinished: Unfinished | None = None
    ) -> None:
        """`unfinished`: None where nothing is read again."""
        self._assignment = assignment
        self._unfinished = unfinished
        self._tell_at = 0.0
        self._going = False
        """The group is about to be left in peace."""
        self._token = f"{VERSION};{instance}-"
        self._number = 0
        self._buffer = Buffer()
        self._open: Open | None = None
        self._repair = OffsetRepair(self._token)
        self.rejoining = False
        self.stopped = False
        self.counts: Counter[str] = Counter()
        """Records by outcome ("confirmed", "drop:<cause>"), commits, and what went wrong."""
        self.lost: Counter[str] = Counter()
        """Kind -> records dropped although their commit may have landed: then nobody runs them."""

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
        if self._unfinished is not None:
            self._unfinished.assigned(places, {p: self._alive(gap) for p, gap in gaps.items()})
        # What is buffered of one that we had already would be read again.
        actions = self._drop_buffered(places, "assigned anew")
        self._assignment.assign(places)
        self._repair.assigned(places)
        return actions

    def _alive(self, gap: UnfinishedGap) -> UnfinishedGap:
        """A gap of this process's own: that time has not ended it."""
        own = gap.token.startswith(self._token)
        return gap._replace(times=max(0, gap.times - 1)) if own else gap

    def revoked(self, places: Sequence[Place]) -> list[Action]:
        """Partitions are gone. Their share of the open commit stays until that is decided."""
        self._assignment.revoke(places)
        self._repair.revoked(places)
        if self._unfinished is not None:
            self._unfinished.revoked(places)
        return self._drop_buffered(places, "revoked")

    def last_word(self, places: Sequence[Place]) -> SendCommit | None:
        """Partitions are about to be let go: the commit that says from where to read them.

        Nothing of them is delivered any more. Its answer need not come: what it would have told
        the next owner is told less precisely by the commit before it.
        """
        unfinished, offsets, marks = self._unfinished, {}, {}
        quiet = self.rejoining or (self._open is not None and self._open.broken)
        for place in places:
            if unfinished is None or quiet or place not in self._assignment:
                continue
            offset = unfinished.committed(place)
            piece = None if self._open is None else self._open.pieces.get(place)
            if piece is not None and piece.generation == self._assignment.generation(place):
                offset = piece.offset  # it may have landed, and no commit goes backwards
            if offset is not None:
                offsets[place] = offset
                marks[place] = unfinished.mark(place, offset, going=True)
        self._assignment.revoke(places)
        if not offsets:
            return None
        self._number += 1
        self.counts["last words"] += 1
        return SendCommit(offsets, f"{self._token}{self._number};", marks)

    def restarted(self, places: Sequence[Place]) -> list[Action]:
        """Partitions have another log now: what was not committed of the old one is gone."""
        self._repair.restarted(places)
        if self._unfinished is not None:
            self._unfinished.restarted(places)
        return self._drop_buffered(places, "its log is gone")

    def finished(self, records: Iterable[Record]) -> None:
        """Records are done, or answered for."""
        if self._unfinished is not None:
            self._unfinished.finished(records)

    def given_up(self, records: Iterable[Record]) -> None:
        """Delivered records will not start here: the next owner of their partition has them."""
        if self._unfinished is not None:
            self._unfinished.given_up(records)

    def polled(self, runs: Iterable[Run]) -> int:
        """Buffers records that the assignment let in; returns their size in bytes."""
        if self._unfinished is not None:
            runs = self._unfinished.polled(runs)
        return self._buffer.add(runs)

    # What a commit became

    def connection_lost(self, *, late: bool = False) -> list[Action]:
        """A connection to the coordinator broke; `late`: maybe before the last answer came."""
        if self._open is not None:
            self._open.broken = True
        return self._rejoin(BROKEN) if late and self._open is None else []

    def answered(self, answer: Answered) -> list[Action]:
        """A commit was answered; answers to others than the one that waits are ignored."""
        commit = self._open
        if commit is None or commit.phase is not CommitPhase.SENT:
            return []
        if answer.metadata not in (commit.metadata, None):
            return []  # None: an error from inside the client may name no partition, so no token
        codes = {code for code in (answer.error, *answer.errors.values()) if code}
        if not codes and answer.metadata is None:
            # Nothing says whose answer it is, or of which partitions.
            codes = {NOTHING_SAID}
        if not codes:
            return [*self._deliver(commit, list(commit.pieces)), *self._decided(commit)]
        worst = max(sorted(codes), key=lambda code: judge(code).verdict.value)
        commit.error, commit.verdict = worst, judge(worst).verdict
        commit.unknown_errors = 0 if codes <= TABLE.keys() else commit.unknown_errors + 1
        if commit.unknown_errors >= UNKNOWN_LIMIT:
            commit.verdict = Verdict.FATAL
        commit.broken |= any(judge(code).loose for code in codes)
        self.counts[f"error:{worst}"] += 1
        # Whichever partitions it names: any of them may have landed.
        commit.phase = CommitPhase.ASKED
        return [ReadBack(tuple(commit.pieces))]

    def read_back(self, found: Found, now: float) -> list[Action]:
        """The group's committed offsets, as far as they could be read."""
        commit = self._open
        if commit is None:
            return self._put_right(found, now)
        if commit.phase is not CommitPhase.ASKED:
            return []
        ours = [place for place, piece in commit.pieces.items()
                if _is_of(found.get(place), piece.offset, commit.metadata)]  # fmt: skip
        actions = self._deliver(commit, ours)
        for place in list(commit.pieces):
            if place in found or commit.verdict is Verdict.FATAL:
                # The group stands before it: whoever owns the partition reads it.
                read_again = place in found and found[place][0] < commit.pieces[place].offset
                actions += self._not_landed(commit, place, read_again=read_again)
        if not commit.pieces:
            return [*actions, *self._decided(commit)]
        clear = all(place in found for place in commit.pieces)
        commit.phase = CommitPhase.AGAIN if clear else CommitPhase.UNCLEAR
        commit.tries += 1
        commit.due = now + (AGAIN_PAUSES if clear else UNREAD_PAUSES).after(commit.tries)
        return actions

    def _deliver(self, commit: Open, places: Sequence[Place]) -> list[Action]:
        if self._unfinished is not None:
            return self._deliver_owned(commit, places, self._unfinished)
        records: list[Record] = []
        for place in places:
            piece = commit.pieces.pop(place)
            records += piece.records
            generation = self._assignment.generation(place)
            came_back = generation not in (None, piece.generation)
            if generation is None or (came_back and self._assignment.restarted(place)):
                continue  # another's now, or an offset of a log that is gone
            self._repair.committed(place, piece.offset)
            if came_back:  # while this was unclear: what it reads again is delivered here
                self._skip(place, piece.offset)
        self.counts["confirmed"] += len(records)
        return [Deliver(records)] if records else []

    def _deliver_owned(
        self, commit: Open, places: Sequence[Place], unfinished: Unfinished
    ) -> list[Action]:
        """What is not ours any more, or was assigned anew, is read from its low mark."""
        actions: list[Action] = []
        records: list[Record] = []
        for place in places:
            piece = commit.pieces.pop(place)
            if self._assignment.generation(place) != piece.generation:
                actions += self._dropped(place, len(piece.records), "read again by its next owner")
                continue
            self._repair.committed(place, piece.offset)
            if piece.mark is not None:
                unfinished.told(place, piece.offset, piece.mark)
            if piece.records:
                marked = unfinished.marked(place, piece.records)
                self.counts["read again"] += sum(map(is_read_again, marked))
                unfinished.delivered(place, marked)
                records += marked
        self.counts["confirmed"] += len(records)
        return [*actions, Deliver(records)] if records else actions

    def _not_landed(self, commit: Open, place: Place, *, read_again: bool) -> list[Action]:
        """A share that is not the group's offset stays only to be sent again."""
        piece = commit.pieces[place]
        if self._assignment.generation(place) != piece.generation:
            cause = "not ours any more"
        elif commit.verdict is Verdict.AGAIN:
            return []
        else:
            cause = "fatal error" if commit.verdict is Verdict.FATAL else "put out of the group"
        del commit.pieces[place]
        if not read_again:
            return self._lost(place, piece, cause)
        return self._dropped(place, len(piece.records), cause)

    def _decided(self, commit: Open) -> list[Action]:
        """Every partition of the open commit is delivered or dropped."""
        self._open = None
        if commit.verdict is Verdict.FATAL:
            self.stopped = True
            reason = judge(commit.error).reason
            return [EndService(f"offsets can't be committed: {commit.error}, {reason}")]
        # A member that the group has put out reads what it dropped again once it has joined anew.
        out = commit.verdict is Verdict.REJOIN and bool(self._assignment.places)
        if commit.broken or out:
            return self._rejoin(BROKEN if commit.broken else commit.error)
        return []

    def rejoin(self, reason: str) -> list[Action]:
        """The group is to be joined anew; not while a commit is open."""
        return self._rejoin(reason) if self._open is None else []

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
        pieces: dict[Place, Piece] = {}
        for place, share in self._buffer.take(room).items():
            offset = share.records[-1][OFFSET] + 1
            if self._unfinished is not None:
                offset = max(offset, self._unfinished.floor(place))
            pieces[place] = Piece(self._generation(place), offset, *share)
        return [self._send(pieces, now)] if pieces else []

    def _tell(self, now: float) -> list[Action]:
        """A commit of what is committed already, where that tells of low marks that have risen."""
        if self._unfinished is None or now < self._tell_at:
            return []
        self._tell_at = now + TELL_PAUSE
        pieces = {
            place: Piece(self._generation(place), offset, [], 0)
            for place, offset in self._unfinished.risen(going=self._going).items()
        }
        return [self._send(pieces, now)] if pieces else []

    def _send(self, pieces: dict[Place, Piece], now: float) -> SendCommit:
        self._number += 1
        commit = self._open = Open(f"{self._token}{self._number};", pieces, now)
        self.counts["commits"] += 1
        return self._sent(commit)

    def _sent(self, commit: Open) -> SendCommit:
        pieces, unfinished = commit.pieces, self._unfinished
        if unfinished is not None:
            for place, piece in pieces.items():
                piece.mark = unfinished.mark(place, piece.offset, going=self._going)
        marks = {place: piece.mark for place, piece in pieces.items() if piece.mark is not None}
        offsets = {place: piece.offset for place, piece in pieces.items()}
        return SendCommit(offsets, commit.metadata, marks)

    def _send_again(self, commit: Open) -> list[Action]:
        actions: list[Action] = []
        for place, piece in list(commit.pieces.items()):
            # Revoked during the pause: the broker would let the commit pass all the same.
            if self._assignment.generation(place) != piece.generation:
                # It was clear that it had not landed, or it would not be sent again.
                actions += self._not_landed(commit, place, read_again=True)
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
            if self._unfinished is None:
                self._skip(place, offset)
            else:
                self._unfinished.raise_floor(place, offset, found[place][0])
            pieces[place] = Piece(self._generation(place), offset, [], 0)
        return [self._send(pieces, now)]

    def _skip(self, place: Place, offset: int) -> None:
        """Records below `offset` were taken in an earlier assignment: they are not taken again."""
        self._assignment.raise_watermark(place, offset - 1)
        self.counts["drop:taken before"] += self._buffer.drop_below(place, offset)

    # Shutdown

    def stop(self) -> list[Action]:
        """Begins nothing more. What was not committed is left to the next owner."""
        self.stopped = True
        return self._drop_buffered(self._buffer.places, "stopping")

    def tell_marks(self, now: float) -> list[Action]:
        """The last commit before the group is left: how far it is finished."""
        if self._open is not None or self.rejoining:
            return []
        self._going, self._tell_at = True, now
        return self._tell(now)

    def abandon(self) -> list[Action]:
        """Gives up an open commit whose outcome did not become known in time."""
        pieces = {} if self._open is None else self._open.pieces
        self._open = None
        return [a for p, piece in pieces.items() for a in self._lost(p, piece, "undecided")]

    def _lost(self, place: Place, piece: Piece, cause: str) -> list[Action]:
        if self._unfinished is None:  # else the next owner reads it, or reads it again
            self.lost.update(map(kind_of, piece.records))
        return self._dropped(place, len(piece.records), cause)

    def _drop_buffered(self, places: Sequence[Place], cause: str) -> list[Action]:
        return [
            a for place in places for a in self._dropped(place, self._buffer.drop(place), cause)
        ]

    def _dropped(self, place: Place, count: int, cause: str) -> list[Action]:
        if not count:
            return []
        self.counts[f"drop:{cause}"] += count
        return [Drop(place, count, cause)]

    def _generation(self, place: Place) -> int:
        generation = self._assignment.generation(place)
        if generation is None:
            raise AssertionError(f"{place} has records to commit and is not owned")
        return generation


def _is_of(found: tuple[int, str | None] | None, offset: int, token: str) -> bool:
    """Whether an offset was committed with a token, whatever low mark it tells."""
    return found is not None and found[0] == offset and token_of(found[1]) == token
