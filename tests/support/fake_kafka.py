"""A Kafka client that does what a test says."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from consumer.intake.events import Answered, Assigned, BeforeRevoke, Event, Found, Place, Revoked
from consumer.intake.offset_metadata import LowMark, UnfinishedGap


class FakeKafka:
    """Follows the loop's `KafkaClient` protocol; answers commits at the next poll."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.calls: list[str] = []
        self.commits: list[tuple[dict[Place, int], str]] = []
        self.waits: list[tuple[int, float]] = []
        self.paused: dict[Place, bool] = {}
        self.places: tuple[Place, ...] = (("t", 0),)
        self.found: Found = {}
        self.silent = False
        """Commits are not answered."""
        self.error: str | None = None
        """What commits are answered with."""
        self.refuse: str | None = None
        """What a commit fails with at once."""
        self.stays_assigned = False
        self.member = False
        self.missing_topics: tuple[str, ...] | None = ()
        self.before_revoke: BeforeRevoke = lambda _places: None
        self.marks: list[dict[Place, LowMark]] = []
        self.behind: dict[str, int] = {}
        self.brokers_away_for: float | None = None
        self.unknown: set[Place] = set()
        """Partitions for which nobody can say where to begin."""
        self.gaps: dict[Place, UnfinishedGap] = {}
        """What is read again of those that were asked about once more."""
        self.asked: list[tuple[tuple[Place, ...], float]] = []
        self.close_hangs = threading.Event()
        self.close_hangs.set()

    def subscribe(self) -> None:
        self.calls.append("subscribe")
        self.member = True
        self.events.append(Assigned(self.places))

    def unsubscribe(self) -> None:
        self.calls.append("unsubscribe")
        if not self.stays_assigned:
            self.events.append(Revoked(self.places, lost=False))

    def poll(self, most: int, timeout: float) -> list[Event]:
        self.waits.append((most, timeout))
        events, self.events = self.events, []
        return events

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, LowMark]
    ) -> Answered | None:
        self.commits.append((dict(offsets), metadata))
        self.marks.append(dict(marks))
        if self.refuse:
            return Answered(metadata, self.refuse, {}, sent=False)
        if not self.silent:
            self.events.append(Answered(metadata, self.error, {}))
        return None

    def find_starts(self, places: Sequence[Place], timeout: float) -> Assigned:
        self.asked.append((tuple(places), timeout))
        unknown = tuple(place for place in places if place in self.unknown)
        return Assigned(tuple(places), self.gaps, unknown)

    def committed(self, places: Sequence[Place], timeout: float) -> Found:
        self.calls.append("committed")
        return {place: self.found[place] for place in places if place in self.found}

    def pause(self, places: Iterable[Place], *, paused: bool) -> None:
        for place in places:
            self.paused[place] = paused

    def lag(self) -> dict[str, int]:
        assert "close" not in self.calls, "another thread has the client"
        return self.behind

    def close(self) -> None:
        self.calls.append("close")
        self.close_hangs.wait(30)
