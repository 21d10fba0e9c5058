"""What becomes of records once their commit is decided: delivered, dropped or lost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from consumer.intake.assignment import Assignment, Buffer
from consumer.intake.commit_errors import Verdict
from consumer.intake.events import Action, Deliver, Drop, Place
from consumer.intake.offset_repair import OffsetRepair
from consumer.intake.open_commit import OpenCommit, Piece
from consumer.intake.unfinished import Unfinished
from feedback.contract.record import Record, is_read_again, kind_of, size_of


class Settlement:
    """Takes shares out of the open commit, and records out of the buffer."""

    def __init__(
        self,
        assignment: Assignment,
        buffer: Buffer,
        repair: OffsetRepair,
        unfinished: Unfinished | None,
    ) -> None:
        """`unfinished`: None where nothing is read again."""
        self._assignment = assignment
        self._buffer = buffer
        self._repair = repair
        self._unfinished = unfinished
        self.counts: Counter[str] = Counter()
        """Records by outcome: "confirmed", "read again", "drop:<cause>"."""
        self.lost: Counter[str] = Counter()
        """Kind -> records dropped although their commit may have landed: then nobody runs them."""

    def landed(self, commit: OpenCommit, places: Sequence[Place]) -> list[Action]:
        """These shares are the group's offsets, with our token."""
        if self._unfinished is not None:
            return self._deliver_owned(commit, places, self._unfinished)
        records: list[Record] = []
        size = 0
        for place in places:
            piece = commit.pieces.pop(place)
            records += piece.records
            size += piece.size
            generation = self._assignment.generation(place)
            if piece.log_gone:
                self._drop_same(place, piece.records)
                continue
            if generation is None:
                continue  # another's now
            self._repair.committed(place, piece.offset)
            if generation != piece.generation:
                # It came back while this was unclear: what it reads again is delivered here.
                self._skip(place, piece.offset)
        self.counts["confirmed"] += len(records)
        return [Deliver(records, size)] if records else []

    def _deliver_owned(
        self, commit: OpenCommit, places: Sequence[Place], unfinished: Unfinished
    ) -> list[Action]:
        """What is not ours any more, or was assigned anew, is read from its low mark."""
        actions: list[Action] = []
        records: list[Record] = []
        size = 0
        for place in places:
            piece = commit.pieces.pop(place)
            generation = self._assignment.generation(place)
            if generation != piece.generation:
                kept = self._keep(place, piece, unfinished)
                self.counts["read again"] += sum(map(is_read_again, kept))
                records += kept
                size += size_of(kept)
                others = len(piece.records) - len(kept)
                actions += self.dropped(place, others, "read again by its next owner")
                continue
            self._repair.committed(place, piece.offset)
            if piece.mark is not None:
                unfinished.told(place, piece.offset, piece.mark)
            if piece.records:
                marked = unfinished.marked(place, piece.records)
                if is_read_again(marked[0]):  # they come before all others
                    self.counts["read again"] += sum(map(is_read_again, marked))
                unfinished.delivered(place, marked)
                records += marked
                size += piece.size
        self.counts["confirmed"] += len(records)
        return [*actions, Deliver(records, size)] if records else actions

    def _keep(self, place: Place, piece: Piece, unfinished: Unfinished) -> list[Record]:
        """What of an assignment that is over runs here all the same: nobody else may read it."""
        if not piece.log_gone:
            read_here = place in self._assignment
            return unfinished.keep(place, piece.alone, read_here=read_here)
        unfinished.keep_alone(place, piece.records)
        self._drop_same(place, piece.records)
        return piece.records

    def not_landed(self, commit: OpenCommit, place: Place, *, read_again: bool) -> list[Action]:
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
            return self._lose(place, piece, cause)
        return self.dropped(place, len(piece.records), cause)

    def is_read_by_others(self, piece: Piece) -> bool:
        """Whether a share that is given up, landed or not, is read by whoever comes next."""
        return not piece.records or (self._unfinished is not None and not piece.alone)

    def undecided(self, commit: OpenCommit) -> list[Action]:
        """The outcome of what is left of a commit did not become known in time."""
        pieces = commit.pieces.items()
        return [a for place, piece in pieces for a in self._lose(place, piece, "undecided")]

    def put_back(self, place: Place, offset: int, read_from: int) -> None:
        """Records below `offset` were taken before, and are read from `read_from` on once more."""
        if self._unfinished is None:
            self._skip(place, offset)
        else:
            self._unfinished.raise_floor(place, offset, read_from)

    def _skip(self, place: Place, offset: int) -> None:
        """What is delivered here already is not taken again."""
        self._assignment.raise_watermark(place, offset - 1)
        self.counts["drop:taken before"] += self._buffer.drop_below(place, offset)

    def _drop_same(self, place: Place, delivered: Iterable[Record]) -> None:
        """A log that was only cut off still has some of them."""
        self.counts["drop:taken before"] += self._buffer.drop_same(place, delivered)

    def drop_buffered(self, places: Iterable[Place], cause: str) -> list[Action]:
        """What was not committed of these partitions is left to whoever owns them next."""
        return [a for place in places for a in self.dropped(place, self._buffer.drop(place), cause)]

    def dropped(self, place: Place, count: int, cause: str) -> list[Action]:
        """So many records of a partition won't run here."""
        if not count:
            return []
        self.counts[f"drop:{cause}"] += count
        return [Drop(place, count, cause)]

    def _lose(self, place: Place, piece: Piece, cause: str) -> list[Action]:
        # The others' next owner reads them, or reads them again.
        alone = piece.records if self._unfinished is None else piece.alone
        self.lost.update(map(kind_of, alone))
        return self.dropped(place, len(piece.records), cause)
