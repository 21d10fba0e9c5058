"""Partitions that are ours and not begun: nobody could say yet where to begin in them. Pure.

Their committed offset could not be read, or they have no leader that knows where their log begins.
Nothing of them is taken or committed until somebody is asked once more and answers: what was not
finished of them comes first. The others go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from consumer.intake.events import Place
from feedback.backoff import Backoff


class UnknownStarts:
    """Owned by the loop's thread."""

    def __init__(self) -> None:
        self._places: dict[Place, None] = {}
        self._pauses = Backoff(1.0, 30.0)
        self._due = 0.0
        self.tries = 0
        """Questions in a row that nobody has answered."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The partitions that wait for an answer."""
        return tuple(self._places)

    def found(self, places: Sequence[Place], unknown: Iterable[Place], now: float) -> None:
        """It was asked where to begin in `places`, which are ours; for `unknown` nobody could say.

        A question that brought something is followed soon by the next one, as are new partitions.
        """
        unanswered = dict.fromkeys(unknown)
        in_vain = len(unanswered) == len(places) and unanswered.keys() <= self._places.keys()
        if not in_vain:
            self._pauses.reset()
            self.tries = 0
        for place in places:
            self._places.pop(place, None)
        self._places |= unanswered
        if unanswered:
            self.tries += 1
            self._due = now + self._pauses.next()

    def revoked(self, places: Iterable[Place]) -> None:
        """Partitions are no longer ours; those that were begun are ignored."""
        for place in places:
            self._places.pop(place, None)

    def due(self, now: float) -> tuple[Place, ...]:
        """The partitions to ask about now."""
        return self.places if self._places and now >= self._due else ()
