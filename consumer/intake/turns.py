"""Which partitions to pause and to resume, and whose turn it is then. Pure.

A pause throws away what the client has fetched, and what it fetches first afterwards is its own
affair. One fetch of small messages is more than the bound, so the same partition could fill it
again and again, and the others would never be heard. So whoever has not been heard for longest is
resumed ahead of the others: until it says something, or says nothing for a moment. What is still in
hand keeps the workers busy meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from consumer.intake.events import Place

HEAD_START: Final = 0.75
"""Seconds ahead of the others: after a pause the first messages take 0.2 to 0.6."""


class Turns:
    """What the client was told last, and who was heard when."""

    def __init__(self) -> None:
        self.paused = False
        """What it was told, but for those that follow."""
        self._last: dict[Place, int] = {}
        """The number of each partition's last turn; it is missing where there was none."""
        self._number = 0
        self._ahead: Place | None = None
        self._until = 0.0

    def heard(self, places: Iterable[Place]) -> None:
        """Something of these partitions was read."""
        for place in places:
            self._number += 1
            self._last[place] = self._number
            if place == self._ahead:
                self._until = 0.0

    def due(self, now: float, *, paused: bool) -> bool:
        """Whether `change` has anything to say; `paused`: all are to be, or none."""
        return paused != self.paused or (self._ahead is not None and now >= self._until)

    def change(
        self, places: Sequence[Place], now: float, *, paused: bool, busy: bool
    ) -> Sequence[Place]:
        """Which of `places`, our partitions, to pause or to resume now that it is due.

        `busy`: something is in hand, so that others may wait for the one whose turn it is.
        """
        before, self.paused = self.paused, paused
        ahead, self._ahead = self._ahead, None
        if paused == before:
            return [place for place in places if place != ahead]
        if paused or not busy or len(places) < 2:
            return places
        self._last = {place: self._last[place] for place in places if place in self._last}
        ahead = min(places, key=lambda place: self._last.get(place, 0))
        self.heard([ahead])  # it has its turn, also where it has nothing to say
        self._ahead, self._until = ahead, now + HEAD_START
        return [ahead]
