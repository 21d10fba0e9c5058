"""The low marks that commits tell: when, and as a last word before partitions are let go. Pure.

With nothing read again (`read_again` off) there are none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from consumer.intake.assignment import Run
from consumer.intake.events import Place
from consumer.intake.offset_metadata import LowMark, UnfinishedGap
from consumer.intake.open_commit import Piece
from consumer.intake.unfinished import Unfinished
from feedback.contract.record import OFFSET, Record, read_again

TELL_PAUSE: Final = 1.0
"""Seconds between two commits that only tell low marks."""


class Marks:
    """What commits tell of what is not finished. `unfinished`: None where nothing is read again."""

    def __init__(self, unfinished: Unfinished | None, token: str) -> None:
        """`token`: what every token of this process's begins with."""
        self.unfinished = unfinished
        self._token = token
        self._tell_at = 0.0
        self._going = False
        """The group is about to be left in peace."""

    # What happens to partitions and records

    def assigned(self, places: Sequence[Place], gaps: Mapping[Place, UnfinishedGap]) -> None:
        """Partitions are ours from now on, with what has to be read again."""
        if (unfinished := self.unfinished) is not None:
            unfinished.assigned(
                places, {p: self._alive(gap, unfinished.begun_before(p)) for p, gap in gaps.items()}
            )

    def _alive(self, gap: UnfinishedGap, begun: int | None) -> UnfinishedGap:
        """A gap of this process's own, which lives: nobody has had anything of it since.

        That time, if it was counted, has not ended it, and what it had begun it knows.
        """
        if gap.begun is not None or not gap.token.startswith(self._token):
            return gap
        return gap._replace(times=max(0, gap.times - 1), begun=begun)

    def revoked(self, places: Sequence[Place]) -> None:
        """Partitions are gone."""
        if self.unfinished is not None:
            self.unfinished.revoked(places)

    def restarted(self, places: Collection[Place]) -> None:
        """Partitions have another log."""
        if self.unfinished is not None:
            self.unfinished.restarted(places)

    def polled(self, runs: Iterable[Run]) -> Iterable[Run]:
        """What was read, without what is in hand from an earlier assignment."""
        return runs if self.unfinished is None else self.unfinished.polled(runs)

    def departed(self, finished: Sequence[Record], given_up: Sequence[Record]) -> None:
        """What has left the pool since it was asked last."""
        if finished:
            self.finished(finished)
        if given_up:
            self.given_up(given_up)

    def finished(self, records: Iterable[Record]) -> None:
        """Records are done, or answered for."""
        if self.unfinished is not None:
            self.unfinished.finished(records)

    def given_up(self, records: Iterable[Record]) -> None:
        """Delivered records will not start here: the next owner of their partition has them."""
        if self.unfinished is not None:
            self.unfinished.given_up(records)

    def marked(self, place: Place, records: list[Record], *, ours: bool) -> list[Record]:
        """Records to deliver, those that are read again marked as such.

        `ours`: they were polled in the present assignment; else others may have had any of them.
        """
        if self.unfinished is None or not records:
            return records
        return self.unfinished.marked(place, records) if ours else list(map(read_again, records))

    # What is told

    def of(self, pieces: Mapping[Place, Piece]) -> dict[Place, LowMark]:
        """The marks to tell with a commit of these shares, which are noted on them."""
        unfinished, marks = self.unfinished, {}
        if unfinished is not None:
            for place, piece in pieces.items():
                read_to = piece.records[-1][OFFSET] + 1 if piece.records else None
                mark = unfinished.mark(place, piece.offset, read_to=read_to, going=self._going)
                marks[place] = piece.mark = mark
        return marks

    def least(self, place: Place, offset: int) -> int:
        """The offset to commit: none of a partition's may lie below where its gap ends."""
        return offset if self.unfinished is None else max(offset, self.unfinished.floor(place))

    def read_from(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where the next owners of partitions begin at the most, if nothing more is told of them.

        What lies below it and is in hand is this process's alone.
        """
        unfinished = self.unfinished
        return {} if unfinished is None else {p: unfinished.worn_to(p) for p in places}

    def risen(self, now: float) -> dict[Place, int]:
        """Partitions whose mark is worth a commit of its own, and the offset of that."""
        if self.unfinished is None or now < self._tell_at:
            return {}
        self._tell_at = now + TELL_PAUSE
        return self.unfinished.risen(going=self._going)

    def going(self, now: float) -> None:
        """The group is about to be left in peace: what has risen may be told at once."""
        self._going, self._tell_at = True, now

    def last_words(
        self, places: Iterable[Place], opened: Mapping[Place, Piece]
    ) -> tuple[dict[Place, int], dict[Place, LowMark]]:
        """(offsets, marks) of the commit before partitions are let go.

        `opened`: the open commit's shares of them, as far as those are still ours.
        """
        offsets: dict[Place, int] = {}
        marks: dict[Place, LowMark] = {}
        unfinished = self.unfinished
        if unfinished is None:
            return offsets, marks
        for place in places:
            # The open one may have landed, and no commit goes backwards.
            piece = opened.get(place)
            offset = unfinished.to_tell(place) if piece is None else piece.offset
            if offset is None:
                continue
            mark = unfinished.mark(place, offset, going=True)
            if piece is not None and mark.begun is not None and (alone := piece.alone):
                # They run here if it has landed.
                mark = mark._replace(begun=min(mark.begun, alone[0][OFFSET]))
            offsets[place], marks[place] = offset, mark
        return offsets, marks
