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
                        +-- recalled, or its worker died +

`tags[lane]` names the last chunk that took from a lane. Invariants: a lane with held records has a
tag that is either a chunk in flight, which lists the lane in `blocked`, or WAITING, and then the
lane stands in the queue of waiting lanes; a chunk that is done blocks no lane.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from feedback.contract.record import KEY, PARTITION, TOPIC, VALUE, Record, is_due, kind_of
from processing.ipc.frames import Suspect
from processing.pool.concurrency import Limited
from processing.pool.costs import CHUNK_SECONDS, Costs
from processing.settings import Ordering

LANES = 65536
CHUNK_REQUESTS = 500
CHUNK_BYTES = 1024 * 1024


class Chunk:
    """Records that one worker runs together."""

    __slots__ = (
        "alone", "blocked", "done", "due", "gone", "limited", "number", "records", "suspicion",
        "worker",
    )  # fmt: skip

    def __init__(self, number: int, worker: int) -> None:
        self.number = number
        self.worker = worker
        self.records: list[Record] = []
        self.suspicion: Suspect | None = None
        self.blocked: dict[int, None] = {}
        """Lanes whose held records wait until this chunk is done."""
        self.alone = False
        """Its one record goes alone: nothing may wait behind it."""
        self.gone: set[int] = set()
        """Indices of records that are no longer this chunk's: done, or recalled."""
        self.done = False
        self.limited: Counter[str] = Counter()
        """How many of its records are of which limited type."""
        self.due = 0
        """How many of its records come from the waiting queue."""

    def remaining(self) -> Iterable[tuple[int, Record]]:
        """The records that are still this chunk's, with their indices."""
        gone = self.gone
        return ((i, r) for i, r in enumerate(self.records) if i not in gone)


class Held(NamedTuple):
    """A record that waits for its lane."""

    record: Record
    suspicion: Suspect | None


WAITING = Chunk(-1, -1)
"""The tag of a lane whose held records no chunk in flight blocks."""

LaneOf = Callable[[Record], int | None]


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


LANE_OF: dict[Ordering, LaneOf] = {
    "key": lane_by_key,
    "partition": lane_by_partition,
    "none": no_lane,
}


class Lanes:
    """The records in hand that no worker has, in the order in which they may go."""

    def __init__(self, ordering: Ordering, costs: Costs) -> None:
        self._lane_of = LANE_OF[ordering]
        self._costs = costs
        self._tags: list[Chunk | None] = [None] * LANES
        self._intake: tuple[deque[Record], deque[Record]] = (deque(), deque())
        """What came from Kafka, and from the waiting queue. They take turns: else the longer one
        would keep the other waiting."""
        self._held: dict[int, deque[Held]] = {}
        self._quick: deque[int] = deque()
        """Waiting lanes whose first record may share a chunk."""
        self._alone: tuple[deque[int | Held], deque[int | Held]] = (deque(), deque())
        """Waiting lanes whose first record goes alone, and records without a lane that do; in turns
        as above."""
        self._due_first = False
        self._limited: Limited[int | Held] = Limited()
        """The same of limited types, whether they go alone or not; but no suspects."""
        self._limited_first = False
        self._sorted_at = costs.version
        """The version of the costs by which `_alone` was sorted out."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def submit(self, records: Sequence[Record]) -> None:
        """Takes records in the order of their partitions, or all of them from the waiting queue."""
        if records:
            self._intake_of(records[0]).extend(records)
        self._count += len(records)

    def limit(
        self,
        most: Mapping[str, int],
        in_chunk: Mapping[str, int],
        chunks: Iterable[Chunk],
    ) -> None:
        """From now on at most so many of a type are in flight, and at most so many in one chunk.

        `chunks` are all that are in flight: what they hold counts.
        """
        places = [*self._quick, *self._alone[0], *self._alone[1], *self._limited.clear()]
        for queue in (self._quick, *self._alone):
            queue.clear()
        self._limited.set(most, in_chunk, chunks)
        loose: list[Record] = []
        for place in places:
            if not isinstance(place, Held):
                self._wait(place)
            elif place.suspicion is not None:
                self._alone_of(place.record).append(place)
            else:
                loose.append(place.record)
        self._give_back(loose)

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Limited type -> how many are in flight."""
        return self._limited.in_flight

    def take_quick(self, chunk: Chunk, limit: int, in_flight: Sequence[Chunk] = ()) -> bool:
        """Fills a chunk with up to `limit` records that may share one; False when there is none.

        `in_flight` are the chunks that the same worker runs before this one: what waits for them
        may follow in this chunk, as the worker runs its chunks one after the other.
        """
        filling = _Filling(chunk, min(limit, CHUNK_REQUESTS))
        if self._sorted_at != self._costs.version:
            self._sort_out_alone()
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
        self._count -= len(chunk.records)
        return bool(chunk.records)

    def take_alone(self, chunk: Chunk, *, suspects: bool = True) -> bool:
        """Puts one record that goes alone into a chunk; False when there is none.

        Records that go alone are found while `take_quick` looks for others, so call that before.
        With `suspects` False, suspects stay (while the database is away).
        """
        self._limited_first = not self._limited_first
        if self._limited_first and self._take_limited_alone(chunk):
            return True
        self._due_first = not self._due_first
        for queue in self._alone[:: -1 if self._due_first else 1]:
            if self._take_first(queue, chunk, suspects=suspects):
                return True
        return not self._limited_first and self._take_limited_alone(chunk)

    def _take_limited_alone(self, chunk: Chunk) -> bool:
        return any(
            self._take_first(queue, chunk)
            for kind, queue in self._limited.queues()
            if self._costs.of(kind) is None
        )

    def _take_first(self, queue: deque[int | Held], chunk: Chunk, *, suspects: bool = True) -> bool:
        for _ in range(len(queue)):
            place = queue.popleft()
            held = place if isinstance(place, Held) else self._held[place][0]
            if held.suspicion is not None and not (
                suspects and self._limited.room_for_suspect(kind_of(held.record))
            ):
                queue.append(place)
                continue
            chunk.records.append(held.record)
            chunk.suspicion = held.suspicion
            chunk.alone = True
            self._limited.taken(kind_of(held.record), chunk)
            if not isinstance(place, Held):
                self._held[place].popleft()
                self._bind(place, chunk)
            self._count -= 1
            return True
        return False

    def release(self, chunk: Chunk) -> None:
        """A chunk is done: what waited for it may go."""
        chunk.done = True
        self._limited.release(chunk)
        for lane in chunk.blocked:
            # A chunk that the same worker runs later may have taken the lane over.
            if self._tags[lane] is chunk:
                self._wait(lane)
        chunk.blocked.clear()

    def take_back(
        self, chunk: Chunk, indices: Sequence[int], in_flight: Sequence[Chunk] = ()
    ) -> None:
        """Records of a chunk in flight that were not started come back, to run elsewhere.

        `in_flight` are all chunks of the same worker: lanes of which they still hold records stay
        bound to it. Of two chunks of one worker the later one's must come back first, or order is
        lost.
        """
        lanes: dict[int, None] = {}
        for index in sorted(set(indices) - chunk.gone, reverse=True):
            chunk.gone.add(index)
            record = chunk.records[index]
            self._limited.back(kind_of(record), chunk)
            self._put_first(Held(record, None))
            lane = self._lane_of(record)
            if lane is not None:
                lanes[lane] = None
        busy = {self._lane_of(r) for c in (chunk, *in_flight) for _, r in c.remaining()}
        for lane in lanes:
            tag = self._tags[lane]
            if lane not in busy and tag is not None and tag is not WAITING:
                tag.blocked.pop(lane, None)
                self._wait(lane)

    def put_back(self, chunk: Chunk, suspicions: dict[int, Suspect]) -> None:
        """A chunk ended without its records being done: they come back, suspects as such.

        Of two chunks of one worker the later one must be put back first, or order is lost.
        """
        for index, record in reversed(list(chunk.remaining())):
            self._put_first(Held(record, suspicions.get(index)))
        self.release(chunk)

    def submit_suspect(self, record: Record, suspicion: Suspect) -> None:
        """Takes a record that has to be looked up before anything else."""
        self._put_first(Held(record, suspicion))

    def take_suspects(self) -> list[Held]:
        """Takes all suspects out, where nothing is in flight and `empty` was called before."""
        suspects: list[Held] = []
        for queue in self._alone:
            suspects += (place for place in queue if isinstance(place, Held))
            queue.clear()
        for lane, held in self._held.items():
            suspects += held
            self._tags[lane] = None
        self._held.clear()
        self._count -= len(suspects)
        return suspects

    def empty(self) -> list[Record]:
        """Takes everything out that is no suspect; order within each lane is kept."""
        places = (*self._alone[0], *self._alone[1], *self._limited.clear())
        for queue in (self._quick, *self._alone):
            queue.clear()
        records: list[Record] = []
        for place in places:
            if isinstance(place, Held) and place.suspicion is None:
                records.append(place.record)
            elif isinstance(place, Held):
                self._alone_of(place.record).append(place)
        for lane, held in list(self._held.items()):
            records += [h.record for h in held if h.suspicion is None]
            suspects = deque(h for h in held if h.suspicion is not None)
            tag = self._tags[lane]
            self._held[lane] = suspects
            if tag is WAITING:
                self._wait(lane)
            elif not suspects and tag is not None:
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

    def _put_first(self, held: Held) -> None:
        self._count += 1
        lane = self._lane_of(held.record)
        if lane is None:
            if held.suspicion is not None:
                self._alone_of(held.record).appendleft(held)
            else:
                self._intake_of(held.record).appendleft(held.record)
            return
        queue = self._held.get(lane)
        if queue is None:
            queue = self._held[lane] = deque()
        queue.appendleft(held)
        tag = self._tags[lane]
        if tag is WAITING:
            # Its first record is another one now, perhaps one that goes alone.
            self._requeue(lane)
        elif tag is None or tag.done:
            self._wait(lane)
        else:
            tag.blocked[lane] = None

    def _requeue(self, lane: int) -> None:
        for queue in (self._quick, *self._alone):
            if lane in queue:
                queue.remove(lane)
        self._limited.remove(lane)
        self._wait(lane)

    def _wait(self, lane: int) -> None:
        """Queues a lane that nothing in flight blocks, by what its first record needs."""
        held = self._held.get(lane)
        if not held:
            self._held.pop(lane, None)
            self._tags[lane] = None
            return
        self._tags[lane] = WAITING
        kind = kind_of(held[0].record)
        if kind in self._limited.most and held[0].suspicion is None:
            self._limited.wait(kind, lane)
        elif self._goes_alone(held[0]):
            self._alone_of(held[0].record).append(lane)
        else:
            self._quick.append(lane)

    def _goes_alone(self, held: Held) -> bool:
        return held.suspicion is not None or self._costs.of(kind_of(held.record)) is None

    def _bind(self, lane: int, chunk: Chunk) -> None:
        """A chunk took from a lane: what the lane still holds waits for it."""
        self._tags[lane] = chunk
        if self._held.get(lane):
            chunk.blocked[lane] = None
        else:
            self._held.pop(lane, None)

    def _follow(self, earlier: Chunk, filling: _Filling) -> None:
        for lane in list(earlier.blocked):
            if filling.full:
                return
            if self._tags[lane] is earlier and not self._goes_alone(self._held[lane][0]):
                self._take_lane(lane, filling)
                if self._tags[lane] is filling.chunk:
                    del earlier.blocked[lane]

    def _take_lane(self, lane: int, filling: _Filling) -> None:
        held = self._held[lane]
        tag = self._tags[lane]
        took = False
        while held and not filling.full and held[0].suspicion is None:
            record = held[0].record
            kind = kind_of(record)
            cost = self._costs.of(kind)
            room = self._limited.room(kind, filling.chunk)
            if cost is None or not room or not filling.add(record, cost):
                break
            self._limited.taken(kind, filling.chunk)
            held.popleft()
            took = True
        if took:
            self._bind(lane, filling.chunk)
        elif tag is WAITING:
            self._wait(lane)

    def _take_limited(self, filling: _Filling) -> None:
        for kind, queue in self._limited.queues():
            cost = self._costs.of(kind)
            for _ in range(0 if cost is None else len(queue)):
                if filling.full or not self._limited.room(kind, filling.chunk):
                    break
                place = queue.popleft()
                if not isinstance(place, Held):
                    self._take_lane(place, filling)
                elif filling.add(place.record, cost or 0.0):
                    self._limited.taken(kind, filling.chunk)
                else:
                    queue.appendleft(place)

    def _take_fresh(self, fresh: deque[Record], filling: _Filling) -> None:
        tags, lane_of, cost_of = self._tags, self._lane_of, self._costs.of
        chunk, held, limited = filling.chunk, self._held, self._limited.most
        while fresh and not filling.full:
            record = fresh[0]
            lane = lane_of(record)
            if lane is not None:
                tag = tags[lane]
                if (
                    tag is not None
                    and not tag.done
                    and (tag.worker != chunk.worker or lane in held)
                ):
                    self._hold(lane, tag, fresh.popleft())
                    continue
            kind = kind_of(record)
            cost = cost_of(kind)
            if cost is None or kind in limited:
                self._set_aside(lane, fresh.popleft())
                continue
            if not filling.add(record, cost):
                return
            if lane is not None:
                tags[lane] = chunk
            fresh.popleft()

    def _hold(self, lane: int, tag: Chunk, record: Record) -> None:
        queue = self._held.get(lane)
        if queue is None:
            queue = self._held[lane] = deque()
            tag.blocked[lane] = None
        queue.append(Held(record, None))

    def _set_aside(self, lane: int | None, record: Record) -> None:
        """A fresh record goes alone or is of a limited type, and its lane waits behind it."""
        if lane is None:
            if (kind := kind_of(record)) in self._limited.most:
                self._limited.wait(kind, Held(record, None))
            else:
                self._alone_of(record).append(Held(record, None))
            return
        tag = self._tags[lane]
        if tag is not None and not tag.done:
            self._hold(lane, tag, record)
        else:
            self._held[lane] = deque((Held(record, None),))
            self._wait(lane)

    def _sort_out_alone(self) -> None:
        """A kind that went alone may share chunks now: nothing of it needs to wait for its turn."""
        self._sorted_at = self._costs.version
        places = [*self._alone[0], *self._alone[1]]
        for queue in self._alone:
            queue.clear()
        loose: list[Record] = []
        for place in places:
            if not isinstance(place, Held):
                self._wait(place)
            elif self._goes_alone(place):
                self._alone_of(place.record).append(place)
            else:
                loose.append(place.record)
        self._give_back(loose)

    def _give_back(self, records: Sequence[Record]) -> None:
        """Records without a lane go before those that were never looked at, in their order."""
        for record in reversed(records):
            self._intake_of(record).appendleft(record)

    def _intake_of(self, record: Record) -> deque[Record]:
        return self._intake[is_due(record)]

    def _alone_of(self, record: Record) -> deque[int | Held]:
        return self._alone[is_due(record)]


class _Filling:
    """A chunk being filled, and what it may still take."""

    __slots__ = ("chunk", "full", "limit", "seconds", "size")

    def __init__(self, chunk: Chunk, limit: int) -> None:
        self.chunk = chunk
        self.limit = limit
        self.seconds = 0.0
        self.size = 0
        self.full = limit <= 0

    def add(self, record: Record, cost: float) -> bool:
        """Adds a record, unless the chunk would become too large by it."""
        chunk, value = self.chunk, record[VALUE]
        size = self.size if value is None else self.size + len(value)
        if size > CHUNK_BYTES and chunk.records:
            self.full = True
            return False
        chunk.records.append(record)
        self.size = size
        self.seconds += cost
        self.full = len(chunk.records) >= self.limit or self.seconds >= CHUNK_SECONDS
        return True
