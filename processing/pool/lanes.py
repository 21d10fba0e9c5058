"""Which records may run now: what waits in front of the workers, and goes into chunks. Pure.

A lane is what may not run side by side. It is bound to a worker only while that worker has records
of it in flight, so a slow key holds up no other. How a record moves:

    submit -> fresh -----------------------------> taken into a chunk -> done
                |  lane in flight elsewhere, or a        |
                |  limited type                          |
                +-> held by the lane --> waiting lane ---+
                        ^                                |
                        +-- given back, or its worker died

What lanes hold and wait for is the `LaneOrder`'s, which of them goes next the `Queues`'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from itertools import chain

from feedback.contract.record import Record, is_due, kind_of, record_size
from processing.ipc.frames import Suspect
from processing.pool.chunk import Chunk, Filling, Held
from processing.pool.kept_back import KeptBack
from processing.pool.lane_order import BEFORE_ALL, LaneOrder
from processing.pool.queues import Fresh, Place, Queues
from processing.pool.worker_time import Costs, share_of
from processing.settings import Ordering


class Lanes:
    """The records in hand that no worker has, in the order in which they may go."""

    def __init__(self, ordering: Ordering, costs: Costs) -> None:
        self._costs = costs
        self._table = LaneOrder(ordering)
        self._fresh: Fresh = (deque(), deque())
        """They take turns: else the longer one would keep the other waiting."""
        self._due_first = False
        self._queues = Queues(costs, self._table, self._fresh)
        self._limited = self._queues.limited
        self.kept_back = KeptBack(self._queues, self._table)
        self._limited_call_first = False
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def alone_waits(self) -> bool:
        """A record that goes alone is known to wait."""
        return bool(self._queues.alone.waiting)

    @property
    def calls_wait(self) -> bool:
        """A call is known to wait that may be opened."""
        return self._queues.calls_wait

    @property
    def chunks_wait(self) -> bool:
        """Anything else may be ready to run."""
        return self._queues.chunks_wait

    @property
    def held_back(self) -> int:
        """How many could not go as they came: they go alone, or wait for their lane or a limit."""
        return self._count - sum(map(len, self._fresh))

    def held_back_records(self) -> Iterator[Record]:
        """Those records."""
        return (held.record for held in self._held_back())

    def suspicions(self) -> Iterator[Suspect]:
        """What is suspected of records that have to be looked up first."""
        return (held.suspect for held in self._held_back() if held.suspect is not None)

    def _held_back(self) -> Iterator[Held]:
        return chain(self._table.everything(), self._queues.apart())

    @property
    def in_use(self) -> Mapping[str, int]:
        """Limited type -> how many are in flight; a suspect may go whatever the limit says."""
        suspects = self._queues.alone.kinds
        in_flight = self._limited.in_flight
        return {kind: max(in_flight[kind], kind in suspects) for kind in self._limited.most}

    @property
    def present(self) -> Mapping[str, int]:
        """Limited type -> how many could be in flight if there were no limit."""
        return {
            kind: n + len(self._limited.waiting.get(kind, ())) for kind, n in self.in_use.items()
        }

    @property
    def waiting(self) -> dict[str, int]:
        """Limited type -> how many of its lanes, and records without one, wait for their turn."""
        return {kind: len(queue) for kind, queue in self._limited.waiting.items() if queue}

    def submit(self, records: Sequence[Record]) -> None:
        """Takes records in the order of their partitions, or all of them from the waiting queue."""
        self._count += len(records)
        if records := self._queues.sift(records):
            self._fresh[is_due(records[0])].extend(records)

    def limit(self, most: Mapping[str, int], in_chunk: Mapping[str, int]) -> None:
        """From now on at most so many of a type are in flight, and at most so many in one chunk."""
        places = self._queues.clear()
        self._limited.set(most, in_chunk, self._table.in_flight.values())
        self._queues.sort(places)

    def run_beside(self, at_once: Mapping[str, int]) -> None:
        """From now on records of these kinds are calls: a worker may have so many open."""
        queues = self._queues
        self._costs.run_at_once(at_once)
        places = queues.clear()
        queues.beside = frozenset(at_once)
        unseen = [list(fresh) for fresh in self._fresh]
        for fresh in self._fresh:
            fresh.clear()
        queues.sort(places)
        for fresh, records in zip(self._fresh, unseen, strict=True):
            fresh.extend(queues.sift(records))

    # Into chunks

    def take_quick(self, chunk: Chunk, limit: int, in_flight: Sequence[Chunk] = ()) -> bool:
        """Fills a chunk with up to `limit` records that may share one; False when there is none.

        `in_flight` are the chunks that the same worker runs before this one: what waits for them
        may follow in this chunk, as the worker runs its chunks one after the other.
        """
        queues, limited = self._queues, bool(self._limited.most)
        filling = Filling(chunk, limit, self._table, queues, self._costs)
        self._table.in_flight[chunk.number] = chunk
        queues.sort_quickened()
        for earlier in in_flight:
            filling.follow(earlier)
        # Before the others every second time, so that neither keeps the other waiting.
        if limited and queues.limited_in_turn():
            filling.take_limited()
        filling.take_waiting()
        self._due_first = not self._due_first
        for fresh in self._fresh[:: -1 if self._due_first else 1]:
            filling.take_fresh(fresh)
        if limited:
            filling.take_limited()
        return self._taken(chunk)

    def take_decided(self, chunk: Chunk) -> bool:
        """Puts a suspect into a chunk that only has to be looked up; False when there is none."""
        alone = self._queues.alone
        if (share := alone.decided) is not None:
            self._take_first(alone.take_at(share), chunk)
            alone.served(share, chunk.seconds)
        return self._taken(chunk)

    def take_alone(self, chunk: Chunk) -> bool:
        """Puts one record that goes alone into a chunk; False when there is none.

        Records that go alone are found while `take_quick` looks for others, so call that before.
        """
        limited_first, alone = self._queues.limited_in_turn(), self._queues.alone
        if limited_first and self._take_limited_alone(chunk, self._goes_in_chunks):
            return self._taken(chunk)
        for share in alone.shares():
            for index, place in enumerate(alone.waiting[share]):
                if self._take_first(place, chunk):
                    alone.take_at(share, index)
                    alone.served(share, chunk.seconds)
                    return self._taken(chunk)
        if not limited_first:
            self._take_limited_alone(chunk, self._goes_in_chunks)
        return self._taken(chunk)

    def take_call(self, chunk: Chunk, has_room: Callable[[str], bool]) -> bool:
        """Puts one call into a chunk, of a kind that has room there; False when there is none."""
        calls = self._queues.calls
        self._limited_call_first = not self._limited_call_first
        if self._limited_call_first and self._take_limited_alone(chunk, has_room):
            return self._taken(chunk)
        for share in calls.shares():
            if has_room(share[0]):
                self._take_first(calls.take_at(share), chunk)
                calls.served(share, chunk.seconds)
                return self._taken(chunk)
        if not self._limited_call_first:
            self._take_limited_alone(chunk, has_room)
        return self._taken(chunk)

    def was_held_up(self, chunk: Chunk, index: int, seconds: float) -> None:
        """A record that goes alone kept a worker so long."""
        self._queues.alone.served(share_of(chunk.records[index], chunk.suspect), seconds)

    def _goes_in_chunks(self, kind: str) -> bool:
        return kind not in self._queues.beside

    def _taken(self, chunk: Chunk) -> bool:
        if not chunk.records:
            self._table.in_flight.pop(chunk.number, None)
            return False
        self._table.in_flight[chunk.number] = chunk
        self._count -= len(chunk.records)
        return True

    def _take_limited_alone(self, chunk: Chunk, may: Callable[[str], bool]) -> bool:
        for kind, queue in self._limited.queues():
            if self._costs.of(kind) is None and may(kind):
                return self._take_first(queue.popleft(), chunk)
        return False

    def _take_first(self, place: Place, chunk: Chunk) -> bool:
        held = place if isinstance(place, Held) else self._table.held[place][0]
        if not self._limited.room_for(held, chunk):
            return False
        kind = kind_of(held.record)
        chunk.add(held)
        chunk.size = record_size(held.record)
        chunk.suspect = held.suspect
        chunk.alone = True
        chunk.seconds = self._costs.expected(kind, alone=held.apart)
        self._limited.taken(kind, chunk)
        if not isinstance(place, Held):
            self._table.held[place].popleft()
            self._table.bind(place, chunk)
        return True

    # Out of chunks

    def release(self, chunk: Chunk) -> None:
        """A chunk is done: what waited for it may go."""
        if chunk.limited:
            self._limited.release(chunk)
        for lane in self._table.end(chunk):
            self._queues.put_lane(lane)

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
            chunk.due -= is_due(record)
            self._limited.back(kind_of(record), chunk)
            self._come_back(chunk.held(index))
            lane = self._table.lane_of(record)
            if lane is not None:
                lanes[lane] = None
        for lane in self._table.given_back(lanes, (chunk, *in_flight)):
            self._queues.put_lane(lane)

    def put_back(
        self, chunk: Chunk, suspects: Mapping[int, Suspect], *, alone: Container[int] = (),
        elsewhere: Container[int] = (),
    ) -> None:  # fmt: skip
        """A chunk ended without its records being done: they come back, suspects as such.

        `alone`: the others of these indices go alone from now on; `elsewhere`: those of `alone`
        that are tried after a pause, as others may be at them.
        """
        for index, _ in reversed(list(chunk.remaining())):
            suspect, waits = suspects.get(index), index in elsewhere
            self._come_back(chunk.held(index, suspect, alone=index in alone, elsewhere=waits))
        self.release(chunk)

    def submit_suspect(self, record: Record, suspect: Suspect) -> None:
        """Takes a record that has to be looked up before anything else."""
        self._come_back(Held(record, suspect, first_sent=BEFORE_ALL))

    def _come_back(self, held: Held) -> None:
        self._count += 1
        table, lane = self._table, self._table.lane_of(held.record)
        if lane is None:
            self._queues.put_first(held)
            return
        table.put_back(lane, held)
        chunk = table.chunk_of(lane)
        if chunk is not None:
            chunk.blocked[lane] = None
            return
        if table.waits(lane):
            # Its first record may be another one now, perhaps one that goes alone.
            self._queues.remove(lane)
        self._queues.put_lane(lane)

    # Given up

    def take_suspects(self) -> list[Held]:
        """Takes all suspects out, where nothing is in flight and all else was taken out before."""
        suspects = [*self._queues.clear_suspects(), *self._table.clear()]
        self._count -= len(suspects)
        return suspects

    def take_out(self, goes: Callable[[Record], bool]) -> list[Record]:
        """Takes out the records of which `goes` says so, each lane's in order; but no suspects."""
        records: list[Record] = []
        for place in self._queues.clear():
            if not isinstance(place, Held):
                continue
            if place.suspect is None and goes(place.record):
                records.append(place.record)
            else:
                self._queues.put_loose(place)
        for lane, others in self._table.take_out(goes):
            records += others
            if self._table.chunk_of(lane) is None:
                self._queues.put_lane(lane)
        for fresh in self._fresh:
            stay: list[Record] = []
            for record in fresh:
                (records if goes(record) else stay).append(record)
            fresh.clear()
            fresh.extend(stay)
        self._count -= len(records)
        return records

    def take_apart(self, kinds: Collection[str]) -> list[Record]:
        """Takes out what goes alone for what has happened to it, of these limited types."""
        records: list[Record] = []
        for place in self._queues.alone.take(kinds) if kinds else ():
            if isinstance(place, Held):
                records.append(place.record)
                continue
            held = self._table.held[place]
            while held and held[0].suspect is None and kind_of(held[0].record) in kinds:
                records.append(held.popleft().record)
            self._queues.put_lane(place)
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
                    records.append(self._table.held[place].popleft().record)
                    self._queues.put_lane(place)
        self._count -= len(records)
        return records
