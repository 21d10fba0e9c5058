"""The queues of what could not go as it came: who goes next, and who had his turn. Pure.

Lanes whose first record may share a chunk, places that go alone, and places of limited types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from feedback.backend import Backend
from feedback.contract.record import Record, is_due, kind_of
from processing.pool.chunk import Held
from processing.pool.concurrency import Concurrency
from processing.pool.kept_places import KeptPlaces
from processing.pool.lane_order import LaneOrder, sweep_beyond
from processing.pool.worker_time import AloneQueue, Costs, share_of

Place: TypeAlias = int | Held
"""A lane, or a record without one."""
Fresh: TypeAlias = tuple[deque[Record], deque[Record]]
"""Records that were never looked at: from Kafka, and from the waiting queue."""


class Queues:
    """Each record that was looked at stands in one of them, or in a lane."""

    def __init__(self, costs: Costs, table: LaneOrder, fresh: Fresh) -> None:
        self._costs = costs
        self._table = table
        self._fresh = fresh
        self.quick: deque[int] = deque()
        """Lanes whose first record may share a chunk."""
        self.alone: AloneQueue[Place] = AloneQueue()
        """Lanes whose first record goes alone, and records without a lane that do."""
        self.calls: AloneQueue[Place] = AloneQueue()
        """The same of kinds that run beside others of theirs in one worker."""
        self.beside: frozenset[str] = frozenset()
        """Those kinds."""
        self.limited: Concurrency[Place] = Concurrency()
        """The same of limited types, whether they go alone or not; but no suspects."""
        self.unended: set[Backend] = set()
        """Backends of dead workers that do not end: suspects of theirs cannot be looked up."""
        self.refusing = False
        """The database refuses look-ups, of suspects that are marked so; others are tried."""
        self.elsewhere = False
        """Of some records others may be at work yet: those are tried after a pause."""
        self.later = KeptPlaces(table)
        """Lanes whose first record is a suspect that cannot be looked up, for either reason, or one
        that is tried after a pause; and such records without a lane."""
        self._lanes_of_rest: set[int] = set()
        """Lanes of which something stands in `fresh`; perhaps others, too, but not many: see
        `sweep_beyond`."""
        self._most_of_rest = sweep_beyond(0)
        self._limited_first = False

    def limited_in_turn(self) -> bool:
        """Whether limited types go before the others: every second time."""
        self._limited_first = not self._limited_first
        return self._limited_first

    def goes_alone(self, held: Held) -> bool:
        """Whether a record may not share a chunk."""
        return held.apart or self._costs.of(kind_of(held.record)) is None

    def put_lane(self, lane: int) -> None:
        """A lane that nothing in flight blocks waits for its turn, where it holds anything."""
        first = self._table.wait(lane)
        if first is not None:
            self._put(lane, first)

    def put_loose(self, held: Held) -> None:
        """A record without a lane waits for its turn."""
        self._put(held, held)

    def _put(self, place: Place, first: Held) -> None:
        kind = kind_of(first.record)
        if self._waits(first):
            self._keep_back(place, first)
        elif kind in self.limited.most and not first.apart:
            self.limited.wait(kind, place)
        elif kind in self.beside and not first.apart:
            self.calls.put(share_of(first.record), place)
        elif isinstance(place, Held) or self.goes_alone(first):
            self.alone.put(share_of(first.record, first.suspect), place)
        else:
            self.quick.append(place)

    def put_first(self, held: Held) -> None:
        """A record without a lane that came back goes before its like.

        But what goes alone and is no suspect goes behind: it may have to wait as long again.
        """
        kind = kind_of(held.record)
        if self._waits(held):
            self._keep_back(held, held)
        elif held.apart:
            share = share_of(held.record, held.suspect)
            self.alone.put(share, held, first=share.suspect)
        elif kind in self.beside and kind not in self.limited.most:
            self.calls.put(share_of(held.record), held, first=True)
        elif kind in self.beside:
            self.limited.wait(kind, held)
        else:
            self._fresh[is_due(held.record)].appendleft(held.record)

    def sift(self, records: Sequence[Record]) -> Sequence[Record]:
        """Queues what runs beside others of its kind; returns the rest, to be looked at later.

        What follows such a rest in its lane is left there, too.
        """
        if not self.beside:
            return records
        if not any(self._fresh) or len(self._lanes_of_rest) > self._most_of_rest:
            self._look_at_rest()
        rest, table = [], self._table
        for record in records:
            lane = table.lane_of(record)
            if kind_of(record) not in self.beside or lane in self._lanes_of_rest:
                rest.append(record)
                if lane is not None:
                    self._lanes_of_rest.add(lane)
            elif lane is None:
                self.put_loose(Held(record))
            elif lane in table.held:
                table.held[lane].append(Held(record))
                if lane in self.later.lanes:
                    self.later.grew(lane, record)
            else:
                chunk = table.chunk_of(lane)
                table.hold(lane, Held(record), chunk)
                if chunk is None:
                    self.put_lane(lane)
        return rest

    def _look_at_rest(self) -> None:
        lanes = map(self._table.lane_of, chain(*self._fresh))
        self._lanes_of_rest = {lane for lane in lanes if lane is not None}
        self._most_of_rest = sweep_beyond(len(self._lanes_of_rest))

    def remove(self, lane: int) -> None:
        """Takes a lane out of whichever queue it is in."""
        if lane in self.quick:
            self.quick.remove(lane)
        self.later.remove(lane)
        self.alone.remove(lane)
        self.calls.remove(lane)
        self.limited.remove(lane)

    def apart(self) -> Iterator[Held]:
        """Records without a lane that were looked at."""
        queues = (self.alone.places(), self.calls.places(), self.limited.places(), self.later)
        for place in chain(*queues):
            if isinstance(place, Held):
                yield place

    # What has to wait before it is tried

    def _waits(self, first: Held) -> bool:
        return first.elsewhere or self._cannot_be_looked_up(first)

    def _keep_back(self, place: Place, first: Held) -> None:
        self.elsewhere |= first.elsewhere
        self.later.append(place)

    def _cannot_be_looked_up(self, first: Held) -> bool:
        suspect = first.suspect
        if suspect is None:
            return False
        return (self.refusing and suspect.refused) or not self.unended.isdisjoint(suspect.backends)

    def wait_for_backends(self, backends: Iterable[Backend]) -> None:
        """These do not end: their suspects, and what is behind those in a lane, wait for it."""
        self.unended.update(backends)
        self.sort(self.alone.clear())

    def backends_gone(self, backends: Iterable[Backend]) -> None:
        """These have ended: what waited for them may be looked up."""
        self.unended.difference_update(backends)
        self.sort(self.later.take())

    def try_backends(self) -> set[int]:
        """One suspect of each may be looked up: that shows whether the backend has ended.

        Returns the lanes of those.
        """
        waited_for, tried, lanes = set[Backend](), set[Backend](), set[int]()
        for place in self.later.take():
            first = self.first_of(place)
            mine = self.unended.intersection(first.suspect.backends if first.suspect else ())
            waited_for |= mine
            if mine <= tried:
                self.later.append(place)
            else:
                tried |= mine
                if not isinstance(place, Held):
                    lanes.add(place)
                self.alone.put(share_of(first.record, first.suspect), place, first=True)
        self.unended = waited_for  # of others nothing is left here
        return lanes

    def wait_for_look_ups(self) -> None:
        """Look-ups are refused: suspects that met that, and what is behind them in a lane, wait."""
        self.refusing = True
        self.sort(self.alone.clear())

    def look_ups_work(self) -> None:
        """They are not refused any more, as far as one of those suspects shows."""
        self.refusing = False
        self.sort(self.later.take())

    def try_look_ups(self) -> set[int]:
        """Those suspects may be looked up, until one is refused again; the lanes of those."""
        lanes, self.refusing = self._try(self._was_refused)  # where none is, nothing is left here
        return lanes

    def try_elsewhere(self) -> set[int]:
        """All that others may have been at may be tried: each comes back where they are yet.

        Returns the lanes of those.
        """
        barred = self._cannot_be_looked_up
        lanes, tried = self._try(lambda first: first.elsewhere and not barred(first))
        self.elsewhere = tried or any(self.first_of(place).elsewhere for place in self.later)
        return lanes

    def _was_refused(self, first: Held) -> bool:
        suspect = first.suspect
        if suspect is None or not suspect.refused:
            return False
        return self.unended.isdisjoint(suspect.backends)

    def _try(self, may_be: Callable[[Held], bool]) -> tuple[set[int], bool]:
        """Queues what may be tried of what waits: (the lanes of those, whether there was any)."""
        lanes, tried = set[int](), False
        for place in self.later.take():
            first = self.first_of(place)
            if not may_be(first):
                self.later.append(place)
                continue
            tried = True
            if not isinstance(place, Held):
                lanes.add(place)
            self.alone.put(share_of(first.record, first.suspect), place)
        return lanes, tried

    def first_of(self, place: Place) -> Held:
        """The record of a place that goes next."""
        return place if isinstance(place, Held) else self._table.held[place][0]

    def sort_quickened(self) -> None:
        """Of kinds that went alone and may share chunks now nothing needs to wait its turn."""
        if kinds := self._costs.take_quickened():
            self.sort(self.alone.take(kinds))

    def sort(self, places: Iterable[Place]) -> None:
        """Queues places anew: costs or limits have changed."""
        shared: list[Record] = []
        for place in places:
            if not isinstance(place, Held):
                self.put_lane(place)
            elif self.goes_alone(place) or kind_of(place.record) in self.limited.most:
                self.put_loose(place)
            else:
                shared.append(place.record)
        # Before those that were never looked at, in their order.
        for record in reversed(shared):
            self._fresh[is_due(record)].appendleft(record)

    @property
    def calls_wait(self) -> bool:
        """Whether a call waits that may be opened."""
        if not self.beside:
            return False
        limited = any(kind in self.beside for kind, _ in self.limited.queues())
        return bool(self.calls.waiting) or limited

    @property
    def chunks_wait(self) -> bool:
        """Whether anything may be ready to run that is no call."""
        limited = any(kind not in self.beside for kind, _ in self.limited.queues())
        return bool(self.quick or any(self._fresh)) or limited or self._alone_may_go()

    def _alone_may_go(self) -> bool:
        """Whether there is room for anything in `alone`: of limited types it holds suspects."""
        if not self.limited.most:
            return bool(self.alone.waiting)
        room = self.limited.room_for_suspect
        return any(share.decided or room(share.kind) for share in self.alone.waiting)

    def clear_suspects(self) -> list[Held]:
        """Takes out what goes alone; returns the suspects without a lane."""
        places = [*self.alone.clear(), *self.later.take()]
        return [place for place in places if isinstance(place, Held)]

    def clear(self) -> list[Place]:
        """Takes everything out."""
        places = [
            *self.quick, *self.alone.clear(), *self.calls.clear(), *self.limited.clear(),
            *self.later.take(),
        ]  # fmt: skip
        self.quick.clear()
        return places
