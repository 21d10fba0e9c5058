"""Order: what each lane holds, and which chunk it waits for. Pure.

A lane is what may not run side by side: records with one key, or of one partition. It is named by
the whole hash of that, 64 bits, so that two keys share one only by a coincidence that is never
seen; it would cost concurrency, not order.

`tags[lane]` is the number of the last chunk that took from a lane, whether or not it still runs.
A lane without a tag holds nothing, and nothing in flight has taken from it; tags of chunks that
have ended are swept out from time to time, so there are at most `TAGS`, or twice those in use.
Invariants: a lane with held records has a tag that is either that of a chunk in flight, which
lists the lane in `blocked`, or WAITING, and then it stands in a queue; held records stand in the
order in which they were first sent, those that never were behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from feedback.contract.record import KEY, PARTITION, TOPIC, Record, is_due
from processing.pool.chunk import Chunk, Held, Turn
from processing.settings import Ordering

TAGS: Final = 65536
"""More tags than so many are swept."""
WAITING: Final = -1
"""The tag of a lane whose held records no chunk in flight blocks."""
BEFORE_ALL: Final = Turn(-1, 0)

LaneOf: TypeAlias = Callable[[Record], int | None]


def lane_by_key(record: Record) -> int | None:
    """The lane of a record's key; None, which means no order, without one."""
    key = record[KEY]
    return None if key is None else hash(key)


def lane_by_partition(record: Record) -> int | None:
    """The lane of a record's partition; None for one from the waiting queue, which has no order."""
    if is_due(record):
        return None
    return hash((record[TOPIC], record[PARTITION]))


def no_lane(record: Record) -> int | None:  # noqa: ARG001 - one signature for the three orders
    """No order at all."""
    return None


LANE_OF: Final[dict[Ordering, LaneOf]] = {
    "key": lane_by_key,
    "partition": lane_by_partition,
    "none": no_lane,
}


def sweep_beyond(in_use: int) -> int:
    """How many lanes may be remembered, where so many are in use, before the rest is dropped."""
    return max(TAGS, 2 * in_use)


class LaneOrder:
    """The lanes, and the chunks in flight that they wait for."""

    def __init__(self, ordering: Ordering) -> None:
        self.lane_of = LANE_OF[ordering]
        self.tags: dict[int, int] = {}
        self._most_tags = sweep_beyond(0)
        self.held: dict[int, deque[Held]] = {}
        """Lane -> what waits in it, never nothing."""
        self.in_flight: dict[int, Chunk] = {}
        """By number; `end` ends it."""

    def chunk_of(self, lane: int) -> Chunk | None:
        """The chunk in flight that took from a lane last."""
        return self.in_flight.get(self.tags.get(lane, WAITING))

    def waits(self, lane: int) -> bool:
        """Whether a lane holds records that no chunk in flight blocks."""
        return self.tags.get(lane) == WAITING

    def everything(self) -> Iterator[Held]:
        """All that lanes hold."""
        return (held for queue in self.held.values() for held in queue)

    def bind(self, lane: int, chunk: Chunk) -> None:
        """A chunk took from a lane: what the lane still holds waits for it."""
        self.tags[lane] = chunk.number
        if self.held.get(lane):
            chunk.blocked[lane] = None
        else:
            self.held.pop(lane, None)

    def hold(self, lane: int, held: Held, blocked_by: Chunk | None) -> None:
        """A lane that holds nothing gets its first record."""
        self.held[lane] = deque((held,))
        if blocked_by is not None:
            blocked_by.blocked[lane] = None

    def put_back(self, lane: int, held: Held) -> None:
        """A record takes the place in its lane that it had when it was first sent."""
        queue = self.held.setdefault(lane, deque())
        queue.insert(_place_among(queue, held), held)

    def wait(self, lane: int) -> Held | None:
        """No chunk in flight blocks a lane any more. Its first record, None where it holds none."""
        held = self.held.get(lane)
        if held:
            self.tags[lane] = WAITING
            return held[0]
        self.tags.pop(lane, None)
        self.held.pop(lane, None)
        return None

    def end(self, chunk: Chunk) -> list[int]:
        """A chunk is no longer in flight; the lanes that waited for it."""
        self.in_flight.pop(chunk.number, None)
        # A chunk that the same worker runs later may have taken a lane over.
        lanes = [lane for lane in chunk.blocked if self.tags.get(lane) == chunk.number]
        chunk.blocked.clear()
        if len(self.tags) > self._most_tags:
            self._sweep()
        return lanes

    def _sweep(self) -> None:
        """Drops the tags of chunks that have ended: nothing waits for those."""
        in_use = {WAITING, *self.in_flight}
        self.tags = {lane: tag for lane, tag in self.tags.items() if tag in in_use}
        self._most_tags = sweep_beyond(len(self.tags))

    def given_back(self, lanes: Iterable[int], chunks: Iterable[Chunk]) -> Iterator[int]:
        """Those of `lanes` of which none of their worker's chunks has a record any more."""
        busy = {self.lane_of(record) for chunk in chunks for _, record in chunk.remaining()}
        for lane in lanes:
            chunk = self.chunk_of(lane)
            if lane not in busy and chunk is not None:
                chunk.blocked.pop(lane, None)
                yield lane

    def take_out(self, goes: Callable[[Record], bool]) -> Iterator[tuple[int, list[Record]]]:
        """Takes out of every lane what is no suspect and goes: (lane, records)."""
        for lane, held in list(self.held.items()):
            leaving: list[Record] = []
            stay = self.held[lane] = deque()
            for h in held:
                if h.suspect is None and goes(h.record):
                    leaving.append(h.record)
                else:
                    stay.append(h)
            chunk = self.chunk_of(lane)
            if chunk is not None and not self.held[lane]:
                del self.held[lane]
                del chunk.blocked[lane]
            yield lane, leaving

    def clear(self) -> list[Held]:
        """Empties every lane, where nothing is in flight."""
        held = list(self.everything())
        for lane in self.held:
            self.tags.pop(lane, None)
        self.held.clear()
        return held


def _place_among(queue: Sequence[Held], held: Held) -> int:
    """Where a record belongs that comes back: behind those that were sent before it."""
    turn = held.first_sent or BEFORE_ALL
    for index, other in enumerate(queue):
        if other.first_sent is None or other.first_sent > turn:
            return index
    return len(queue)
