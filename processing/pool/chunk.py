"""Records that one worker runs together, and how a chunk is filled with them. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from feedback.contract.record import TYPE, Record, kind_of, record_size
from processing.ipc.frames import Suspect
from processing.pool.worker_time import CHUNK_SECONDS, OVERHEAD, Costs

if TYPE_CHECKING:
    from processing.pool.lane_order import LaneOrder
    from processing.pool.queues import Queues

CHUNK_REQUESTS: Final = 500
CHUNK_BYTES: Final = 1024 * 1024


class Turn(NamedTuple):
    """The place in the order of all records that were ever sent: chunk, index in it."""

    chunk: int
    position: int


class Held(NamedTuple):
    """A record that waits for its turn, and how it has to run."""

    record: Record
    suspect: Suspect | None = None
    """Why it has to be looked up first; then it goes alone."""
    alone: bool = False
    """Whatever its kind: the connection broke under a chunk that it was in."""
    first_sent: Turn | None = None
    """Where it was when it was first sent to a worker; None for one that never was."""
    elsewhere: bool = False
    """Whoever had it before may be at it yet: it is tried after a pause."""

    @property
    def apart(self) -> bool:
        """It goes alone for what has happened to it, not for its kind."""
        return self.suspect is not None or self.alone


class Chunk:
    """Records in flight to one worker."""

    __slots__ = (
        "alone", "blocked", "due", "first_sent", "gone", "limited", "number", "records", "seat",
        "seconds", "size", "suspect", "worker",
    )  # fmt: skip

    def __init__(self, number: int, worker: int) -> None:
        self.number = number
        self.worker = worker
        self.records: list[Record] = []
        self.suspect: Suspect | None = None
        """Of its one record."""
        self.blocked: dict[int, None] = {}
        """Lanes whose held records wait until this chunk is done."""
        self.alone = False
        """Its one record goes alone: nothing may wait behind it."""
        self.seat: int | None = None
        """Where its one record runs beside others; None where it does not."""
        self.gone: set[int] = set()
        """Indices of records that are no longer this chunk's: done, or given back."""
        self.limited: Counter[str] = Counter()
        """How many of its records are of which limited type."""
        self.due = 0
        """How many of the records that are still its own come from the waiting queue."""
        self.seconds = 0.0
        """What it is expected to take."""
        self.size = 0
        """Bytes of its records."""
        self.first_sent: dict[int, Turn] = {}
        """Index -> where that record was first sent, where this is not the first time."""

    def token(self, instance: str) -> str:
        """The token that its claims carry: no other chunk of any instance has it."""
        return f"{instance}-{self.number}"

    def remaining(self) -> Iterable[tuple[int, Record]]:
        """The records that are still this chunk's, with their indices."""
        gone = self.gone
        return ((i, r) for i, r in enumerate(self.records) if i not in gone)

    def take_done(self, back: Collection[int]) -> list[Record]:
        """Takes out what it is done with: all but those that came or come `back`."""
        done = {i: r for i, r in self.remaining() if i not in back}
        self.gone.update(done)
        return list(done.values())

    def add(self, held: Held) -> None:
        """Adds a record that has waited."""
        if held.first_sent is not None:
            self.first_sent[len(self.records)] = held.first_sent
        self.records.append(held.record)

    def held(
        self, index: int, suspect: Suspect | None = None, *, alone: bool = False,
        elsewhere: bool = False,
    ) -> Held:  # fmt: skip
        """A record of this chunk as it waits again; what was suspected of it stays."""
        first_sent = self.first_sent.get(index) or Turn(self.number, index)
        return Held(self.records[index], suspect or self.suspect, alone, first_sent, elsewhere)


class Filling:
    """What a chunk may still take, and where it takes it from."""

    __slots__ = ("_chunk", "_costs", "_full", "_limit", "_limited", "_queues", "_table")

    def __init__(
        self, chunk: Chunk, limit: int, table: LaneOrder, queues: Queues, costs: Costs
    ) -> None:
        self._chunk = chunk
        self._limit = min(limit, CHUNK_REQUESTS)
        self._table = table
        self._queues = queues
        self._limited = queues.limited
        self._costs = costs
        self._full = self._limit <= 0
        chunk.seconds = OVERHEAD

    def follow(self, earlier: Chunk) -> None:
        """Takes what waits for a chunk that the same worker runs before this one."""
        table, goes_alone = self._table, self._queues.goes_alone
        for lane in list(earlier.blocked):
            if self._full:
                return
            if table.tags.get(lane) == earlier.number and not goes_alone(table.held[lane][0]):
                self._take_lane(lane)
                if table.tags.get(lane) == self._chunk.number:
                    del earlier.blocked[lane]

    def take_waiting(self) -> None:
        """Takes from lanes that wait and whose first record may share a chunk."""
        quick = self._queues.quick
        while quick and not self._full:
            self._take_lane(quick.popleft())

    def take_limited(self) -> None:
        """Takes what limited types may still start."""
        for kind, queue in self._limited.queues():
            cost = self._costs.of(kind)
            for _ in range(0 if cost is None else len(queue)):
                if self._full or not self._limited.room(kind, self._chunk):
                    break
                place = queue.popleft()
                if not isinstance(place, Held):
                    self._take_lane(place)
                elif self._fits(place.record, cost or 0.0):
                    self._chunk.add(place)
                    self._limited.taken(kind, self._chunk)
                else:
                    queue.appendleft(place)

    def take_fresh(self, fresh: deque[Record]) -> None:
        """Takes records that were never looked at; what may not go now waits elsewhere."""
        table, cost_of, limited = self._table, self._costs.of, self._limited.most
        tags, lane_of, held, in_flight = table.tags, table.lane_of, table.held, table.in_flight
        chunk, later, fits = self._chunk, self._queues.later, self._fits
        number, worker, take = chunk.number, chunk.worker, chunk.records.append
        kind, cost = None, 0.0
        while fresh and not self._full:
            record = fresh[0]
            lane = lane_of(record)
            if lane is not None:
                if lane in held:
                    held[lane].append(Held(fresh.popleft()))
                    if lane in later.lanes:
                        later.grew(lane, record)
                    continue
                tag = tags.get(lane)
                earlier = None if tag is None else in_flight.get(tag)
                if earlier is not None and earlier.worker != worker:
                    table.hold(lane, Held(fresh.popleft()), earlier)
                    continue
            if kind is None or record[TYPE] != kind:  # of a run of one kind the first is looked up
                kind = kind_of(record)
                known = cost_of(kind)
                if known is None or kind in limited:
                    self._set_aside(lane, Held(fresh.popleft()))
                    kind = None
                    continue
                cost = known
            if not fits(record, cost):
                return
            if lane is not None:
                tags[lane] = number
            take(fresh.popleft())

    def _take_lane(self, lane: int) -> None:
        held, chunk = self._table.held[lane], self._chunk
        took = False
        while held and not self._full and not self._queues.goes_alone(held[0]):
            record = held[0].record
            kind = kind_of(record)
            room = self._limited.room(kind, chunk)
            if not room or not self._fits(record, self._costs.of(kind) or 0.0):
                break
            chunk.add(held.popleft())
            self._limited.taken(kind, chunk)
            took = True
        if took:
            self._table.bind(lane, chunk)
        elif self._table.waits(lane):
            self._queues.put_lane(lane)

    def _set_aside(self, lane: int | None, held: Held) -> None:
        """A fresh record goes alone or is of a limited type, and its lane waits behind it."""
        if lane is None:
            self._queues.put_loose(held)
            return
        chunk = self._table.chunk_of(lane)
        self._table.hold(lane, held, chunk)
        if chunk is None:
            self._queues.put_lane(lane)

    def _fits(self, record: Record, cost: float) -> bool:
        """Whether a record of that cost fits; it counts then. The chunk is full where not."""
        chunk = self._chunk
        size = chunk.size + record_size(record)
        if size > CHUNK_BYTES and chunk.records:
            self._full = True
            return False
        chunk.size = size
        chunk.seconds += cost
        count = len(chunk.records) + 1
        self._full = count >= self._limit or chunk.seconds >= CHUNK_SECONDS + OVERHEAD
        return True
