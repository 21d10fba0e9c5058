"""A chunk being filled with records that may share it. Pure."""

from __future__ import annotations

from collections import deque

from feedback.contract.record import Record, kind_of, record_size
from processing.pool.chunk import CHUNK_BYTES, CHUNK_REQUESTS, Chunk, Held
from processing.pool.costs import CHUNK_SECONDS, OVERHEAD, Costs
from processing.pool.lane_table import WAITING, LaneTable
from processing.pool.queues import Queues


class Filling:
    """What a chunk may still take, and where it takes it from."""

    __slots__ = ("_chunk", "_costs", "_full", "_limit", "_limited", "_queues", "_size", "_table")

    def __init__(
        self, chunk: Chunk, limit: int, table: LaneTable, queues: Queues, costs: Costs
    ) -> None:
        self._chunk = chunk
        self._limit = min(limit, CHUNK_REQUESTS)
        self._table = table
        self._queues = queues
        self._limited = queues.limited
        self._costs = costs
        self._size = 0
        self._full = self._limit <= 0
        chunk.seconds = OVERHEAD

    def follow(self, earlier: Chunk) -> None:
        """Takes what waits for a chunk that the same worker runs before this one."""
        table, goes_alone = self._table, self._queues.goes_alone
        for lane in list(earlier.blocked):
            if self._full:
                return
            if table.tags[lane] == earlier.number and not goes_alone(table.held[lane][0]):
                self._take_lane(lane)
                if table.tags[lane] == self._chunk.number:
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
        chunk = self._chunk
        while fresh and not self._full:
            record = fresh[0]
            lane = lane_of(record)
            if lane is not None:
                if lane in held:
                    held[lane].append(Held(fresh.popleft()))
                    continue
                tag = in_flight.get(tags[lane])
                if tag is not None and tag.worker != chunk.worker:
                    table.hold(lane, Held(fresh.popleft()), tag)
                    continue
            kind = kind_of(record)
            cost = cost_of(kind)
            if cost is None or kind in limited:
                self._set_aside(lane, Held(fresh.popleft()))
                continue
            if not self._fits(record, cost):
                return
            if lane is not None:
                tags[lane] = chunk.number
            chunk.records.append(record)
            fresh.popleft()

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
        elif self._table.tags[lane] == WAITING:
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
        chunk, size = self._chunk, self._size + record_size(record)
        if size > CHUNK_BYTES and chunk.records:
            self._full = True
            return False
        self._size = size
        chunk.seconds += cost
        count = len(chunk.records) + 1
        self._full = count >= self._limit or chunk.seconds >= CHUNK_SECONDS + OVERHEAD
        return True
