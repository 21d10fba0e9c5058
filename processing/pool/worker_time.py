"""The workers' time: how much of it a request of each kind takes, and whose turn it is. Pure.

Costs are learnt from what workers report, and from whom their deaths are blamed on. Turns go by
start-time fair queueing: each share has a clock that runs by the seconds it was served. One that
had nothing to do for a while joins at the common clock, so it is owed nothing for that; one that
was served more than its part keeps that debt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from feedback.contract.record import TYPE, Record, is_due, kind_of
from processing.ipc.frames import Suspect

_type_of: Final = itemgetter(TYPE)

Key = TypeVar("Key", bound=Hashable)
Place = TypeVar("Place")
"""What stands in a queue: a lane, or a record without one."""


class QueueShare(NamedTuple):
    """Requests of which none may keep those of another share waiting."""

    kind: str
    due: bool
    """They are from the waiting queue, not from Kafka."""
    suspect: bool = False
    """They have to be looked up first."""
    decided: bool = False
    """They only have to be looked up, which takes no time: before all others, and not counted."""


_Turn: TypeAlias = tuple[float, int, QueueShare]
"""The clock of a share when it began to wait or was served last, and how many did before."""

CHUNK_SECONDS: Final = 0.05
"""What a chunk should take; a kind whose requests take longer each goes alone."""

WEIGHT: Final = 0.3
"""How much one new measurement counts against all earlier ones."""

OVERHEAD: Final = 0.002
"""Seconds that a chunk costs besides its handlers."""

DEATH: Final = 2.0
"""Seconds that a run which ended with its worker counts for, however long it was: enough to go
alone, and soon forgotten where the next ones are quick."""

ANSWERED: Final = 0.0005
"""Seconds that a request of a kind is taken to need of which only copies were seen."""

MOST_REMEMBERED: Final = 1000
"""Shares whose clocks are kept at most: anybody can make up types."""

NEVER_SERVED: Final = float("-inf")
"""The clock of those that go before all others."""

MOST_KINDS: Final = 10_000
"""Kinds whose seconds are known at once, for the same reason."""


class Costs:
    """Mean seconds per request and kind, recent measurements weighing most.

    A request for which no handler runs, as a copy that is answered or a message that cannot be
    read, says nothing of what the others take. A kind of which nothing else is known is taken for
    a quick one, or they would go one by one; but not for one that takes no time, or what runs after
    them would go in chunks of seconds.
    """

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self._calls: dict[str, float] = {}
        """The same of kinds of which a worker runs several at once: `of` knows nothing of them."""
        self._at_once: Mapping[str, int] = {}
        self._quickened: dict[str, None] = {}

    def observe(self, kind: str, count: int, seconds: float) -> None:
        """Takes a measurement: `count` requests of a kind took `seconds` together; 0: none ran."""
        if kind in self._at_once:
            self._observe_calls(kind, count, seconds)
            return
        known = self._means.get(kind)
        if count <= 0 and known is not None:
            return
        mean = seconds / count if count > 0 else ANSWERED
        alone = known is None or known > CHUNK_SECONDS
        if known is not None:
            weight = 1.0 - (1.0 - WEIGHT) ** count
            mean = known + weight * (mean - known)
        self._means.pop(kind, None)
        self._means[kind] = mean
        if len(self._means) > MOST_KINDS:
            del self._means[next(iter(self._means))]  # was measured longest ago
        if alone and mean <= CHUNK_SECONDS:
            self._quickened[kind] = None

    def reported(self, records: Collection[Record], times: Mapping[str, tuple[int, float]]) -> None:
        """Takes what a worker says; `times`: kind -> (requests that ran, seconds together).

        `records` that have ended, but for suspects: one that is only looked up may have run for any
        time before, or have killed its worker.
        """
        kinds = set(map(_type_of, records))
        if not all(kinds):
            kinds = set(map(kind_of, records))
        for kind in kinds | times.keys():
            self.observe(kind, *times.get(kind, (0, 0.0)))

    def killed(self, blamed: Iterable[Record]) -> None:
        """A worker died of these."""
        for record in blamed:
            self.observe(kind_of(record), 1, DEATH)

    def take_quickened(self) -> Collection[str]:
        """Kinds that went alone and may share chunks now, each told once."""
        kinds, self._quickened = self._quickened, {}
        return kinds

    def run_at_once(self, at_once: Mapping[str, int]) -> None:
        """From now on a worker runs so many of these kinds at once, and no others."""
        self._at_once = at_once
        for kind in at_once:
            self._means.pop(kind, None)

    def _observe_calls(self, kind: str, count: int, seconds: float) -> None:
        if count > 0:
            mean = seconds / count
            known = self._calls.get(kind, mean)
            self._calls[kind] = known + (1.0 - (1.0 - WEIGHT) ** count) * (mean - known)

    def at_once(self, kind: str) -> int:
        """How many requests of a kind that goes alone one worker runs."""
        return self._at_once.get(kind, 1)

    def of(self, kind: str) -> float | None:
        """Mean seconds of one request, or None where it has to go alone.

        Alone go kinds that take longer than a chunk should, and kinds without a measurement.
        """
        mean = self._means.get(kind)
        return None if mean is None or mean > CHUNK_SECONDS else mean

    def measured(self, kind: str) -> float | None:
        """Mean seconds of one request, however long; None without a measurement."""
        return (self._calls if kind in self._at_once else self._means).get(kind)

    def expected(self, kind: str, *, alone: bool = False) -> float:
        """Seconds that a request is expected to keep its worker, measured or not.

        Its part of them, where others run beside it: not of one that runs `alone` all the same.
        """
        if (at_once := self._at_once.get(kind)) is not None:
            seconds = self._calls.get(kind, CHUNK_SECONDS)
            return OVERHEAD + (seconds if alone else seconds / at_once)
        return OVERHEAD + self._means.get(kind, CHUNK_SECONDS)


class TimeShares(Generic[Key]):
    """Equal shares of time for whoever has something to do."""

    def __init__(self) -> None:
        self._clocks: dict[Key, float] = {}
        self._now = 0.0

    def clock(self, key: Key) -> float:
        """Who has the lowest goes next."""
        return max(self._now, self._clocks.get(key, 0.0))

    def in_turn(self, keys: Iterable[Key]) -> list[Key]:
        """These keys, the one that had least first; in the given order where that is the same."""
        return sorted(keys, key=self.clock)

    def served(self, key: Key, seconds: float) -> None:
        """One was given so many seconds."""
        self._now = max(self._now, self._clocks.get(key, 0.0))
        self._clocks[key] = self._now + seconds
        if len(self._clocks) > MOST_REMEMBERED:
            self._forget()

    def _forget(self) -> None:
        """Keeps the half that had most; the common clock moves on to the others."""
        half = sorted(self._clocks.values())[len(self._clocks) // 2]
        self._now = max(self._now, half)
        self._clocks = {key: clock for key, clock in self._clocks.items() if clock > self._now}


def share_of(record: Record, suspect: Suspect | None = None) -> QueueShare:
    """Whose turn a record needs."""
    decided = suspect is not None and suspect.decided
    return QueueShare(kind_of(record), is_due(record), suspect is not None, decided)


class AloneQueue(Generic[Place]):
    """Places whose first record goes alone: a queue per share.

    Anybody can make up types, so there may be as many shares as places: whose turn it is is kept
    in a heap, and nothing that is done for one place looks at all shares.
    """

    def __init__(self) -> None:
        self.waiting: dict[QueueShare, deque[Place]] = {}
        """None of them is empty."""
        self._shares: TimeShares[QueueShare] = TimeShares()
        self._turns: list[_Turn] = []
        """A heap: of each share that waits its turn, and others that are over."""
        self._turn_of: dict[QueueShare, _Turn] = {}
        self._count = 0

    @property
    def kinds(self) -> set[str]:
        """Kinds of which something waits."""
        return {share.kind for share in self.waiting}

    @property
    def decided(self) -> QueueShare | None:
        """One that goes before all others, where such a one waits."""
        first = next(self.shares(), None)
        return first if first is not None and first.decided else None

    def put(self, share: QueueShare, place: Place, *, first: bool = False) -> None:
        """A place waits, behind the others of its share or before them."""
        queue = self.waiting.get(share)
        if queue is None:
            queue = self.waiting[share] = deque()
            self._set_turn(share)
            if len(self._turns) > 2 * len(self._turn_of) + MOST_REMEMBERED:
                self._turns = sorted(self._turn_of.values())
        (queue.appendleft if first else queue.append)(place)

    def shares(self) -> Iterator[QueueShare]:
        """Those that wait, the one that had least first, then the one that waits longest.

        While this goes on nothing may be put; of the share that came last places may be taken.
        """
        passed: list[_Turn] = []
        try:
            while self._turns:
                turn = heappop(self._turns)
                if self._turn_of.get(turn[-1]) is turn:
                    passed.append(turn)
                    yield turn[-1]
        finally:
            for turn in passed:
                if self._turn_of.get(turn[-1]) is turn:
                    heappush(self._turns, turn)

    def take_at(self, share: QueueShare, index: int = 0) -> Place:
        """Takes out a place of a share that waits."""
        queue = self.waiting[share]
        place = queue[index]
        del queue[index]
        if not queue:
            self._drop(share)
        return place

    def served(self, share: QueueShare, seconds: float) -> None:
        """A place that was taken out keeps a worker so long."""
        if not share.decided:
            self._shares.served(share, seconds)
        if share in self.waiting:
            self._set_turn(share)

    def remove(self, place: Place) -> None:
        """Takes a place out of whichever queue it is in."""
        for share, queue in list(self.waiting.items()):
            if place in queue:
                queue.remove(place)
                if not queue:
                    self._drop(share)

    def take(self, kinds: Collection[str]) -> list[Place]:
        """Takes out all that waits of these kinds, but for suspects."""
        shares = [QueueShare(kind, due) for kind in kinds for due in (False, True)]
        return [place for share in shares if share in self.waiting for place in self._drop(share)]

    def places(self) -> list[Place]:
        """All that wait."""
        return [place for queue in self.waiting.values() for place in queue]

    def clear(self) -> list[Place]:
        """Empties the queues."""
        places = self.places()
        self.waiting.clear()
        self._turns.clear()
        self._turn_of.clear()
        return places

    def _drop(self, share: QueueShare) -> deque[Place]:
        del self._turn_of[share]
        return self.waiting.pop(share)

    def _set_turn(self, share: QueueShare) -> None:
        """A share waits, or was served: where it stands among the others."""
        self._count += 1
        clock = NEVER_SERVED if share.decided else self._shares.clock(share)
        turn = (clock, self._count, share)
        self._turn_of[share] = turn
        heappush(self._turns, turn)
