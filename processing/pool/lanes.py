"""Which records may run now: the queue in front of the workers.

A lane is what may not run side by side: records with one key, or of one partition. It is bound to a
worker only while that worker has records of it in flight, so a slow key holds up no other. Lanes
are the values of a hash, so two keys may share one; that costs concurrency, never order.

How a record moves:

    submit -> fresh -----------------------------> taken into a chunk -> done
                |  lane in flight elsewhere, or a        |
                |  limited type                          |
                +-> held by the lane --> waiting lane ---+
                        ^                                |
                        +-- given back, or its worker died

`_tags[lane]` is the number of the last chunk that took from a lane, whether or not it still runs:
numbers, so that nothing that is done is kept. Invariants: a lane with held records has a tag that
is either that of a chunk in flight, which lists the lane in `blocked`, or WAITING, and then the
lane stands in a queue of waiting lanes; held records stand in the order in which they were first
sent, those that never were behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from feedback.contract.record import KEY, PARTITION, TOPIC, Record, is_due, kind_of
from processing.ipc.frames import Suspect
from processing.pool.alone import AloneQueue, share_of
from processing.pool.chunk import Chunk, Filling, Held, Turn
from processing.pool.concurrency import Concurrency
from processing.pool.costs import Costs
from processing.settings import Ordering

LANES: Final = 65536
FREE: Final = -1
"""The tag of a lane that nothing has taken from."""
WAITING: Final = -2
"""The tag of a lane whose held records no chunk in flight blocks."""
BEFORE_ALL: Final = Turn(-1, 0)

LaneOf: TypeAlias = Callable[[Record], int | None]
Place: TypeAlias = int | Held
"""A lane, or a record without one."""


def lane_by_key(record: Record) -> int | None:
    """The lane of a record's key; None, which means no order, without one."""
    key = record[KEY]
    return None if key is None else hash(key) & (LANES - 1)


def lane_by_partition(record: Record) -> int | None:
    """The lane of a record's partition; None for one from the waiting queue, which has no order."""
    if is_due(record):
        return None
    return hash((record[TOPIC], record[PARTITION])) & (LANES - 1)


def no_lane(record: Record) -> int | None:  # noqa: ARG001 - one signature for the three orders
    """No order at all."""
    return None


LANE_OF: Final[dict[Ordering, LaneOf]] = {
    "key": lane_by_key,
    "partition": lane_by_partition,
    "none": no_lane,
}


class Lanes:
    """The records in hand that no worker has, in the order in which they may go."""

    def __init__(self, ordering: Ordering, costs: Costs) -> None:
        self._lane_of = LANE_OF[ordering]
        self._costs = costs
        self._tags = [FREE] * LANES
        self._in_flight: dict[int, Chunk] = {}
        """By number; `release` ends it."""
        self._intake: tuple[deque[Record], deque[Record]] = (deque(), deque())
        """What came from Kafka, and from the waiting queue. They take turns: else the longer one
        would keep the other waiting."""
        self._held: dict[int, deque[Held]] = {}
        self._quick: deque[int] = deque()
        """Waiting lanes whose first record may share a chunk."""
        self._alone: AloneQueue[Place] = AloneQueue()
        """Waiting lanes whose first record goes alone, and records without a lane that do."""
        self._due_first = False
        self._limited: Concurrency[Place] = Concurrency()
        """The same of limited types, whether they go alone or not; but no suspects."""
        self._limited_first = False
        self._sorted_at = costs.version
        """The version of the costs by which `_alone` was sorted out."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def alone_waits(self) -> bool:
        """A record that goes alone is known to wait."""
        return bool(self._alone)

    @property
    def held_back(self) -> int:
        """How many could not go as they came: they go alone, or wait for their lane or a limit."""
        return self._count - sum(map(len, self._intake))

    def held_back_records(self) -> Iterator[Record]:
        """Those records."""
        for queue in self._held.values():
            for held in queue:
                yield held.record
        for place in (*self._alone.places(), *self._limited.places()):
            if isinstance(place, Held):
                yield place.record

    def submit(self, records: Sequence[Record]) -> None:
        """Takes records in the order of their partitions, or all of them from the waiting queue."""
        if records:
            self._intake_of(records[0]).extend(records)
        self._count += len(records)

    def limit(self, most: Mapping[str, int], in_chunk: Mapping[str, int]) -> None:
        """From now on at most so many of a type are in flight, and at most so many in one chunk."""
        places: list[Place] = [*self._quick, *self._alone.clear(), *self._limited.clear()]
        self._quick.clear()
        self._limited.set(most, in_chunk, self._in_flight.values())
        self._sort(places)

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Limited type -> how many are in flight."""
        return self._limited.in_flight

    # Into chunks

    def take_quick(self, chunk: Chunk, limit: int, in_flight: Sequence[Chunk] = ()) -> bool:
        """Fills a chunk with up to `limit` records that may share one; False when there is none.

        `in_flight` are the chunks that the same worker runs before this one: what waits for them
        may follow in this chunk, as the worker runs its chunks one after the other.
        """
        filling = Filling(chunk, limit)
        self._in_flight[chunk.number] = chunk
        if self._sorted_at != self._costs.version:
            # A kind that went alone may share chunks now: nothing of it needs to wait its turn.
            self._sorted_at = self._costs.version
            self._sort(self._alone.clear())
        for earlier in in_flight:
            self._follow(earlier, filling)
        # Before the others every second time, so that neither keeps the other waiting.
        self._limited_first = not self._limited_first
        if self._limited_first:
            self._take_limited(filling)
        while self._quick and not filling.full:
            self._take_lane(self._quick.popleft(), filling)
        self._due_first = not self._due_first
        for queue in self._intake[:: -1 if self._due_first else 1]:
            self._take_fresh(queue, filling)
        self._take_limited(filling)
        return self._taken(chunk)

    def take_alone(self, chunk: Chunk) -> bool:
        """Puts one record that goes alone into a chunk; False when there is none.

        Records that go alone are found while `take_quick` looks for others, so call that before.
        """
        self._limited_first = not self._limited_first
        if self._limited_first and self._take_limited_alone(chunk):
            return self._taken(chunk)
        for share, place in self._alone.in_turn():
            if self._take_first(place, chunk):
                self._alone.served(share, chunk.seconds)
                return self._taken(chunk)
            self._alone.put(share, place)
        return not self._limited_first and self._take_limited_alone(chunk) and self._taken(chunk)

    def _taken(self, chunk: Chunk) -> bool:
        if not chunk.records:
            self._in_flight.pop(chunk.number, None)
            return False
        self._in_flight[chunk.number] = chunk
        self._count -= len(chunk.records)
        return True

    def _take_limited_alone(self, chunk: Chunk) -> bool:
        for kind, queue in self._limited.queues():
            if self._costs.of(kind) is None:
                return self._take_first(queue.popleft(), chunk)
        return False

    def _take_first(self, place: Place, chunk: Chunk) -> bool:
        held = place if isinstance(place, Held) else self._held[place][0]
        kind = kind_of(held.record)
        if held.suspect is not None:
            room = self._limited.room_for_suspect(kind)
        else:
            room = self._limited.room(kind, chunk)
        if not room:
            return False
        chunk.add(held)
        chunk.suspect = held.suspect
        chunk.alone = True
        chunk.seconds = self._costs.expected(kind)
        self._limited.taken(kind, chunk)
        if not isinstance(place, Held):
            self._held[place].popleft()
            self._bind(place, chunk)
        return True

    def _bind(self, lane: int, chunk: Chunk) -> None:
        """A chunk took from a lane: what the lane still holds waits for it."""
        self._tags[lane] = chunk.number
        if self._held.get(lane):
            chunk.blocked[lane] = None
        else:
            self._held.pop(lane, None)

    def _follow(self, earlier: Chunk, filling: Filling) -> None:
        for lane in list(earlier.blocked):
            if filling.full:
                return
            if self._tags[lane] == earlier.number and not self._goes_alone(self._held[lane][0]):
                self._take_lane(lane, filling)
                if self._tags[lane] == filling.chunk.number:
                    del earlier.blocked[lane]

    def _take_lane(self, lane: int, filling: Filling) -> None:
        held = self._held[lane]
        took = False
        while held and not filling.full and not self._goes_alone(held[0]):
            kind = kind_of(held[0].record)
            room = self._limited.room(kind, filling.chunk)
            if not room or not filling.fits(held[0].record, self._costs.of(kind) or 0.0):
                break
            filling.chunk.add(held.popleft())
            self._limited.taken(kind, filling.chunk)
            took = True
        if took:
            self._bind(lane, filling.chunk)
        elif self._tags[lane] == WAITING:
            self._wait(lane)

    def _take_limited(self, filling: Filling) -> None:
        for kind, queue in self._limited.queues():
            cost = self._costs.of(kind)
            for _ in range(0 if cost is None else len(queue)):
                if filling.full or not self._limited.room(kind, filling.chunk):
                    break
                place = queue.popleft()
                if not isinstance(place, Held):
                    self._take_lane(place, filling)
                elif filling.fits(place.record, cost or 0.0):
                    filling.chunk.add(place)
                    self._limited.taken(kind, filling.chunk)
                else:
                    queue.appendleft(place)

    def _take_fresh(self, fresh: deque[Record], filling: Filling) -> None:
        tags, lane_of, cost_of = self._tags, self._lane_of, self._costs.of
        chunk, held, limited = filling.chunk, self._held, self._limited.most
        in_flight = self._in_flight
        while fresh and not filling.full:
            record = fresh[0]
            lane = lane_of(record)
            if lane is not None:
                if lane in held:
                    held[lane].append(Held(fresh.popleft()))
                    continue
                tag = in_flight.get(tags[lane])
                if tag is not None and tag.worker != chunk.worker:
                    self._hold(lane, tag, Held(fresh.popleft()))
                    continue
            kind = kind_of(record)
            cost = cost_of(kind)
            if cost is None or kind in limited:
                self._set_aside(lane, fresh.popleft())
                continue
            if not filling.fits(record, cost):
                return
            if lane is not None:
                tags[lane] = chunk.number
            chunk.records.append(record)
            fresh.popleft()

    def _hold(self, lane: int, tag: Chunk, held: Held) -> None:
        self._held[lane] = deque((held,))
        tag.blocked[lane] = None

    def _set_aside(self, lane: int | None, record: Record) -> None:
        """A fresh record goes alone or is of a limited type, and its lane waits behind it."""
        held = Held(record)
        tag = None if lane is None else self._in_flight.get(self._tags[lane])
        if lane is None:
            self._wait_loose(held)
        elif tag is not None:
            self._hold(lane, tag, held)
        else:
            self._held[lane] = deque((held,))
            self._wait(lane)

    # Out of chunks

    def release(self, chunk: Chunk) -> None:
        """A chunk is done: what waited for it may go."""
        self._in_flight.pop(chunk.number, None)
        self._limited.release(chunk)
        for lane in chunk.blocked:
            # A chunk that the same worker runs later may have taken the lane over.
            if self._tags[lane] == chunk.number:
                self._wait(lane)
        chunk.blocked.clear()

    def take_back(
        self, chunk: Chunk, indices: Sequence[int], in_flight: Sequence[Chunk] = ()
    ) -> None:
        """Records of a chunk in flight that were not started come back, to run elsewhere.

        `in_flight` are all chunks of the same worker: lanes of which they still hold records stay
        bound to it.
        """
        lanes: dict[int, None] = {}
        for index in sorted(set(indices) - chunk.gone, reverse=True):
            chunk.gone.add(index)
            record = chunk.records[index]
            self._limited.back(kind_of(record), chunk)
            self._come_back(chunk.held(index))
            lane = self._lane_of(record)
            if lane is not None:
                lanes[lane] = None
        busy = {self._lane_of(r) for c in (chunk, *in_flight) for _, r in c.remaining()}
        for lane in lanes:
            tag = self._in_flight.get(self._tags[lane])
            if lane not in busy and tag is not None:
                tag.blocked.pop(lane, None)
                self._wait(lane)

    def put_back(
        self, chunk: Chunk, suspects: Mapping[int, Suspect], *, alone: bool = False
    ) -> None:
        """A chunk ended without its records being done: they come back, suspects as such.

        `alone`: the others among them go alone from now on.
        """
        for index, _ in reversed(list(chunk.remaining())):
            self._come_back(chunk.held(index, suspects.get(index), alone=alone))
        self.release(chunk)

    def submit_suspect(self, record: Record, suspect: Suspect) -> None:
        """Takes a record that has to be looked up before anything else."""
        self._come_back(Held(record, suspect, first_sent=BEFORE_ALL))

    def _come_back(self, held: Held) -> None:
        self._count += 1
        lane = self._lane_of(held.record)
        if lane is None:
            if held.apart:
                self._alone.put(share_of(held.record), held, first=True)
            else:
                self._intake_of(held.record).appendleft(held.record)
            return
        queue = self._held.setdefault(lane, deque())
        queue.insert(_place_among(queue, held), held)
        tag = self._in_flight.get(self._tags[lane])
        if tag is not None:
            tag.blocked[lane] = None
            return
        if self._tags[lane] == WAITING:
            # Its first record may be another one now, perhaps one that goes alone.
            self._leave_queues(lane)
        self._wait(lane)

    # Given up

    def take_suspects(self) -> list[Held]:
        """Takes all suspects out, where nothing is in flight and `empty` was called before."""
        suspects = [place for place in self._alone.clear() if isinstance(place, Held)]
        for lane, held in self._held.items():
            suspects += held
            self._tags[lane] = FREE
        self._held.clear()
        self._count -= len(suspects)
        return suspects

    def empty(self) -> list[Record]:
        """Takes everything out that is no suspect; order within each lane is kept."""
        places: list[Place] = [*self._alone.clear(), *self._limited.clear()]
        self._quick.clear()
        records: list[Record] = []
        for place in places:
            if not isinstance(place, Held):
                continue
            if place.suspect is None:
                records.append(place.record)
            else:
                self._wait_loose(place)
        for lane, held in list(self._held.items()):
            records += [h.record for h in held if h.suspect is None]
            suspects = deque(h for h in held if h.suspect is not None)
            tag = self._in_flight.get(self._tags[lane])
            self._held[lane] = suspects
            if tag is None:
                self._wait(lane)
            elif not suspects:
                del self._held[lane]
                del tag.blocked[lane]
        for intake in self._intake:
            records += intake
            intake.clear()
        self._count -= len(records)
        return records

    def take_excess(self, allowed: Mapping[str, int]) -> list[Record]:
        """Takes out what waits beyond so many places of a limited type; the oldest stay."""
        records: list[Record] = []
        for kind, most in allowed.items():
            queue = self._limited.waiting.get(kind)
            while queue is not None and len(queue) > most:
                place = queue.pop()
                if isinstance(place, Held):
                    records.append(place.record)
                else:
                    records.append(self._held[place].popleft().record)
                    self._wait(place)
        self._count -= len(records)
        return records

    @property
    def waiting(self) -> dict[str, int]:
        """Limited type -> how many of its lanes, and records without one, wait for their turn."""
        return {kind: len(queue) for kind, queue in self._limited.waiting.items() if queue}

    # Queues

    def _wait(self, lane: int) -> None:
        """Queues a lane that nothing in flight blocks, by what its first record needs."""
        held = self._held.get(lane)
        if not held:
            self._held.pop(lane, None)
            self._tags[lane] = FREE
            return
        self._tags[lane] = WAITING
        first = held[0]
        kind = kind_of(first.record)
        if kind in self._limited.most and not first.apart:
            self._limited.wait(kind, lane)
        elif self._goes_alone(first):
            self._alone.put(share_of(first.record), lane)
        else:
            self._quick.append(lane)

    def _wait_loose(self, held: Held) -> None:
        """Queues a record without a lane that goes alone or is of a limited type."""
        kind = kind_of(held.record)
        if kind in self._limited.most and not held.apart:
            self._limited.wait(kind, held)
        else:
            self._alone.put(share_of(held.record), held)

    def _leave_queues(self, lane: int) -> None:
        if lane in self._quick:
            self._quick.remove(lane)
        self._alone.remove(lane)
        self._limited.remove(lane)

    def _goes_alone(self, held: Held) -> bool:
        return held.apart or self._costs.of(kind_of(held.record)) is None

    def _sort(self, places: Iterable[Place]) -> None:
        """Queues places anew: costs or limits have changed."""
        loose: list[Record] = []
        for place in places:
            if not isinstance(place, Held):
                self._wait(place)
            elif place.apart:
                self._alone.put(share_of(place.record), place)
            elif self._goes_alone(place) or kind_of(place.record) in self._limited.most:
                self._wait_loose(place)
            else:
                loose.append(place.record)
        # Before those that were never looked at, in their order.
        for record in reversed(loose):
            self._intake_of(record).appendleft(record)

    def _intake_of(self, record: Record) -> deque[Record]:
        return self._intake[is_due(record)]


def _place_among(queue: Sequence[Held], held: Held) -> int:
    """Where a record belongs that comes back: behind those that were sent before it."""
    turn = held.first_sent or BEFORE_ALL
    for index, other in enumerate(queue):
        if other.first_sent is None or other.first_sent > turn:
            return index
    return len(queue)
