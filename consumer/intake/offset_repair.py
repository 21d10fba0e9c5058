"""Looks after partitions that come back after a rejoin, and finds offsets that were put back.

Pure. The bytes of a commit whose connection broke may reach the broker after a later commit and put
the offset back. In the new membership they can't any more; whether they did before is asked once,
before anything of these partitions is committed.
"""

from __future__ import annotations

from collections.abc import Iterable

from consumer.intake.events import Found, Place
from feedback.backoff import Backoff

UNREAD_PAUSES = Backoff(0.5, 2.5)
"""Seconds between two questions for committed offsets, by the number of those without an answer:
each blocks the loop."""


class OffsetRepair:
    """What has to be asked after a rejoin."""

    def __init__(self, token: str) -> None:
        self._token = token
        """What every token of ours begins with."""
        self._committed: dict[Place, int] = {}
        """Of each partition that is ours, the last offset known to be committed with our token."""
        self._away: dict[Place, int] = {}
        """Partitions that we had before the rejoin, with the offset we had confirmed."""
        self._back: dict[Place, int] = {}
        """Those of them that are ours again."""
        self._asked = False
        self._due = 0.0
        self._tries = 0

    @property
    def pending(self) -> bool:
        """Nothing may be committed yet."""
        return bool(self._back)

    def awaits(self, place: Place) -> bool:
        """Whether it is not known yet where the group stands in a partition that came back."""
        return place in self._back

    def committed(self, place: Place, offset: int) -> None:
        """An offset of a partition that is ours is committed."""
        self._committed[place] = offset

    def leaving(self) -> None:
        """A rejoin begins."""
        self._away.update(self._back)
        self._away.update(self._committed)
        self._back.clear()

    def assigned(self, places: Iterable[Place]) -> None:
        """Partitions are ours, perhaps again."""
        for place in places:
            if place in self._away:
                self._back[place] = self._away.pop(place)

    def revoked(self, places: Iterable[Place]) -> None:
        """Partitions are gone, perhaps before they were looked at."""
        for place in places:
            self._committed.pop(place, None)
            if place in self._back:
                self._away[place] = self._back.pop(place)

    def restarted(self, places: Iterable[Place]) -> None:
        """Partitions have another log: offsets of the one before mean nothing."""
        for place in places:
            self._committed.pop(place, None)
            self._back.pop(place, None)

    def ask(self, now: float) -> tuple[Place, ...]:
        """The partitions to ask about now, none while an answer is awaited."""
        if self._asked or now < self._due:
            return ()
        self._asked = True
        return tuple(self._back)

    def found(self, found: Found, now: float) -> dict[Place, int]:
        """The offsets that were put back, each with what has to be committed again."""
        put_back: dict[Place, int] = {}
        for place, confirmed in list(self._back.items()):
            if place not in found:
                continue
            del self._back[place]
            offset, metadata = found[place]
            # Only where the token is one of ours: another's commit, or an operator's, stands.
            if 0 <= offset < confirmed and (metadata or "").startswith(self._token):
                put_back[place] = confirmed
        self._asked = False
        self._tries = self._tries + 1 if self._back else 0
        self._due = now + UNREAD_PAUSES.after(self._tries) if self._back else 0.0
        return put_back
