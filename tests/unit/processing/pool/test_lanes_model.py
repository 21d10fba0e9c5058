"""Whatever happens to lanes, no record is lost, repeated, or out of its order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from feedback.contract.record import KEY, OFFSET, TYPE, is_due
from processing.ipc.frames import Suspect
from processing.pool import lane_order
from processing.pool.chunk import Chunk, Held
from processing.pool.lanes import Lanes
from tests.support.lanes import known_costs, offsets, record

# Many steps of pure code, three times slower where its branches are measured.
pytestmark = pytest.mark.no_cover

KINDS = ["quick", "slow", "new", "call"]
SUSPICION = Suspect(None, ((4711, "then"),), ("token",), 1)


@pytest.fixture(autouse=True, scope="module")
def sweeps() -> Iterator[None]:
    """Tags of lanes that are done are swept after each chunk, not after thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_order, "TAGS", 0)
        yield


class LanesModel(RuleBasedStateMachine):
    """Random events; in every state order per key holds and no record is lost or doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.costs = known_costs()
        self.lanes = Lanes("key", self.costs)
        self.lanes.run_beside({"call": 3})
        self.next_offset = 0
        self.next_chunk = 0
        self.next_worker = 3
        self.workers: dict[int, list[Chunk]] = {0: [], 1: [], 2: []}
        self.submitted: dict[bytes | None, list[int]] = defaultdict(list)
        self.finished: dict[bytes | None, list[int]] = defaultdict(list)
        self.given_up: set[int] = set()
        self.most: dict[str, int] = {}
        self.suspected: dict[int, Suspect] = {}
        """Offset -> what has to come with it whenever it is taken."""

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for chunks in self.workers.values() for chunk in chunks]

    def in_flight(self, kind: str) -> int:
        return sum(r[TYPE] == kind for c in self.chunks for _, r in c.remaining())

    @rule(kind=st.sampled_from(KINDS), most=st.none() | st.integers(0, 3))
    def limit(self, kind: str, most: int | None) -> None:
        self.most.pop(kind, None)
        if most is not None:
            self.most[kind] = most
        self.lanes.limit(dict(self.most), {k: max(1, n // 2) for k, n in self.most.items()})

    @rule(kind=st.sampled_from(KINDS), allowed=st.integers(0, 2))
    def give_up_excess(self, kind: str, allowed: int) -> None:
        excess = self.lanes.take_excess({kind: allowed})
        assert {r[TYPE] for r in excess} <= {kind} & self.most.keys()
        assert self.lanes.waiting.get(kind, 0) <= allowed
        self.given_up |= {r[OFFSET] for r in excess}

    @rule(
        keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), max_size=12),
        kinds=st.lists(st.sampled_from(KINDS), min_size=12, max_size=12),
    )
    def submit(self, keys: list[bytes | None], kinds: list[str]) -> None:
        records = []
        for key, kind in zip(keys, kinds, strict=False):
            records.append(record(self.next_offset, key, kind))
            self.submitted[key].append(self.next_offset)
            self.next_offset += 1
        self.lanes.submit(records)

    @rule(index=st.integers(0, 2), limit=st.integers(1, 4), alone_first=st.booleans())
    def take(self, index: int, limit: int, alone_first: bool) -> None:
        worker = sorted(self.workers)[index]
        in_flight = self.workers[worker]
        if in_flight and in_flight[0].seat is not None:
            return
        before = {kind: self.in_flight(kind) for kind in self.most}
        chunk = Chunk(self.next_chunk, worker)
        self.next_chunk += 1
        if not in_flight:
            taken = (
                (alone_first and self.lanes.take_alone(chunk))
                or self.lanes.take_quick(chunk, limit)
                or self.lanes.take_alone(chunk)
            )
        else:
            may = len(in_flight) < 2 and not in_flight[0].alone
            taken = may and self.lanes.take_quick(chunk, limit, in_flight)
        if taken:
            in_flight.append(chunk)
            known = [self.suspected.get(o) for o in offsets(chunk)]
            assert set(known) == {chunk.suspect}, "a suspicion was lost, or is another's"
            assert chunk.suspect is None or len(known) == 1
        for kind, most in self.most.items():
            least = 1 if chunk.suspect is not None else 0
            assert self.in_flight(kind) <= max(most, least, before[kind])
        self.check_order()

    @rule(index=st.integers(0, 2), most=st.integers(1, 3))
    def take_calls(self, index: int, most: int) -> None:
        """A worker has calls or chunks."""
        worker = sorted(self.workers)[index]
        open_calls = self.workers[worker]
        if open_calls and open_calls[0].seat is None:
            return
        before = self.in_flight("call")
        while len(open_calls) < most:
            chunk = Chunk(self.next_chunk, worker)
            if not self.lanes.take_call(chunk, lambda kind: kind == "call"):
                break
            self.next_chunk += 1
            chunk.seat = len(open_calls)
            assert [r[TYPE] for r in chunk.records] == ["call"]
            assert chunk.suspect is None, "a suspect runs by itself"
            open_calls.append(chunk)
        assert self.in_flight("call") <= max(self.most.get("call", 99), before)
        self.check_order()

    @invariant()
    def what_is_limited_is_counted(self) -> None:
        counted = {kind: n for kind, n in self.lanes._limited.in_flight.items() if n}
        found = {kind: n for kind in self.most if (n := self.in_flight(kind))}
        assert counted == found

    def check_order(self) -> None:
        """What runs of a key runs in one worker, after what came before it."""
        for key in (b"a", b"b", b"c"):
            at = [
                (worker, [r[OFFSET] for c in chunks for _, r in c.remaining() if r[KEY] == key])
                for worker, chunks in self.workers.items()
            ]
            running = [(worker, found) for worker, found in at if found]
            assert len(running) <= 1
            if running:
                found = running[0][1]
                unfinished = [
                    o
                    for o in self.submitted[key]
                    if o not in self.finished[key] and o not in self.given_up
                ]
                assert found == unfinished[: len(found)]

    @precondition(lambda self: any(self.workers.values()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from([w for w, c in self.workers.items() if c]))
        chunks = self.workers[worker]
        calls = chunks[0].seat is not None  # which end in any order
        chunk = chunks.pop(data.draw(st.integers(0, len(chunks) - 1)) if calls else 0)
        self.done(chunk)
        self.lanes.release(chunk)

    def done(self, chunk: Chunk, before: int | None = None) -> None:
        for index, done in list(chunk.remaining()):
            if before is None or index < before:
                self.finished[done[KEY]].append(done[OFFSET])
                self.suspected.pop(done[OFFSET], None)
                chunk.gone.add(index)

    @precondition(lambda self: any(self.workers.values()))
    @rule(data=st.data(), done=st.integers(0, 4), unclear=st.booleans(), first=st.booleans())
    def leave(self, data: st.DataObject, done: int, unclear: bool, first: bool) -> None:
        """A chunk leaves what it did not get to; what the worker has besides is given back."""
        worker = data.draw(st.sampled_from([w for w, c in self.workers.items() if c]))
        chunk, *later = self.workers[worker]
        self.done(chunk, before=done)
        left = dict(chunk.remaining())
        suspects = dict.fromkeys(left, SUSPICION) if unclear else {}
        for other in later if left and first else ():
            self.give_back(other)
        self.workers[worker].pop(0)
        self.suspected.update({r[OFFSET]: SUSPICION for r in left.values() if unclear})
        self.lanes.put_back(chunk, suspects)
        if first or not left:  # else later chunks list what comes after it, and give that back now
            self.check_order()
        for other in later if left and not first else ():
            self.give_back(other)
        if left:
            for other in later:
                self.workers[worker].remove(other)
                self.lanes.put_back(other, {})
        self.check_order()

    def give_back(self, chunk: Chunk) -> None:
        indices = [index for index, _ in chunk.remaining()]
        self.lanes.take_back(chunk, indices, self.workers[chunk.worker])

    @precondition(lambda self: any(self.workers.values()))
    @rule(data=st.data(), started=st.integers(0, 3))
    def recall(self, data: st.DataObject, started: int) -> None:
        worker = data.draw(st.sampled_from([w for w, c in self.workers.items() if c]))
        chunks = self.workers[worker]
        for position in range(len(chunks) - 1, -1, -1):
            first = started if position == 0 else 0
            left = [i for i, _ in chunks[position].remaining()][first:]
            self.lanes.take_back(chunks[position], left, chunks)
        self.check_order()

    @precondition(lambda self: any(self.workers.values()))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from([w for w, c in self.workers.items() if c]))
        chunks = self.workers.pop(worker)
        self.workers[self.next_worker] = []
        self.next_worker += 1
        for unstarted in chunks[1:]:
            self.lanes.put_back(unstarted, {})
        blamed = {i: SUSPICION for i, _ in chunks[0].remaining()}
        self.suspected.update({r[OFFSET]: SUSPICION for _, r in chunks[0].remaining()})
        self.lanes.put_back(chunks[0], blamed)

    @rule()
    def learn(self) -> None:
        self.costs.observe("new", 3, 0.001)

    @rule()
    def unlearn(self) -> None:
        self.costs.observe("new", 3, 3.0)

    @rule()
    def empty(self) -> None:
        self.given_up |= {r[OFFSET] for r in self.lanes.take_out(lambda _: True)}

    @precondition(lambda self: any(self.workers.values()))
    @rule(data=st.data())
    def connection_breaks(self, data: st.DataObject) -> None:
        """What was not done goes alone from then on."""
        worker = data.draw(st.sampled_from([w for w, c in self.workers.items() if c]))
        first, *others = self.workers[worker]
        for chunk in others:
            self.give_back(chunk)
        self.workers[worker] = others
        self.lanes.put_back(first, {}, alone=range(len(first.records)))

    @rule()
    def backend_stays(self) -> None:
        """Nobody looks a suspect up until that has been tried again, or has ended."""
        self.lanes.kept_back.wait_for(SUSPICION.backends)
        assert not any(held.suspect for held in self.lanes._queues.alone.places()
                       if isinstance(held, Held))  # fmt: skip

    @rule()
    def try_backend(self) -> None:
        before, stays = len(self.lanes._queues.later), bool(self.lanes.kept_back.unended)
        stays = stays and any(
            first.suspect is not None and first.suspect.backends for first in self.kept_first
        )
        self.lanes.kept_back.try_again()
        assert len(self.lanes._queues.later) == before - stays

    @property
    def kept_first(self) -> list[Held]:
        return [self.lanes._queues.first_of(place) for place in self.lanes._queues.later]

    def nobody_waits_for_a_look_up(self) -> None:
        assert all(first.elsewhere for first in self.kept_first)

    @precondition(lambda self: any(self.workers.values()))
    @rule(data=st.data())
    def others_are_at_it(self, data: st.DataObject) -> None:
        """What is left of a chunk is tried after a pause, and nothing of it before."""
        worker = data.draw(st.sampled_from([w for w, c in self.workers.items() if c]))
        first, *others = self.workers[worker]
        for chunk in others:
            self.give_back(chunk)
        self.workers[worker] = others
        left = {i: r[OFFSET] for i, r in first.remaining()}
        self.lanes.put_back(first, {}, alone=left, elsewhere=left)
        assert not set(left.values()) & {
            self.lanes._queues.first_of(place).record[OFFSET]
            for place in self.lanes._queues.alone.places()
        }

    @rule()
    def try_elsewhere(self) -> None:
        self.lanes.kept_back.try_elsewhere()
        blocked = self.lanes.kept_back.unended or self.lanes.kept_back.refusing
        assert blocked or not self.lanes._queues.later

    @invariant()
    def what_others_are_at_is_tried_again(self) -> None:
        waits = any(first.elsewhere for first in self.kept_first)
        assert self.lanes.kept_back.elsewhere or not waits

    @rule()
    def backend_ends(self) -> None:
        self.lanes.kept_back.gone(SUSPICION.backends)
        if not self.lanes.kept_back.refusing:
            self.nobody_waits_for_a_look_up()

    @precondition(lambda self: any(c and c[0].suspect for c in self.workers.values()))
    @rule(data=st.data())
    def look_up_is_refused(self, data: st.DataObject) -> None:
        """Nobody looks that one up until it has been tried again, or another could be."""
        found = [w for w, c in self.workers.items() if c and c[0].suspect]
        first, *others = self.workers[data.draw(st.sampled_from(found))]
        assert first.suspect is not None
        again = first.suspect._replace(refused=True)
        self.workers[first.worker] = others
        self.suspected[first.records[0][OFFSET]] = again
        self.lanes.kept_back.wait_for_look_ups()
        self.lanes.put_back(first, {0: again})
        waits = [held.suspect for held in self.lanes._queues.alone.places()
                 if isinstance(held, Held)]  # fmt: skip
        assert again not in waits

    @rule()
    def try_look_ups(self) -> None:
        self.lanes.kept_back.try_look_ups()
        if not self.lanes.kept_back.unended:
            self.nobody_waits_for_a_look_up()

    @rule()
    def look_ups_work(self) -> None:
        self.lanes.kept_back.look_ups_work()
        if not self.lanes.kept_back.unended:
            self.nobody_waits_for_a_look_up()

    @rule(kind=st.sampled_from(KINDS))
    def give_up_apart(self, kind: str) -> None:
        gone = self.lanes.take_apart({kind})
        assert {r[TYPE] for r in gone} <= {kind}
        assert not self.suspected.keys() & {r[OFFSET] for r in gone}
        self.given_up |= {r[OFFSET] for r in gone}

    @rule(partition=st.integers(0, 2))
    def let_go(self, partition: int) -> None:
        """What has not started of a partition is given up; suspects stay."""
        gone = self.lanes.take_out(lambda record: record[OFFSET] % 3 == partition)
        assert not self.suspected.keys() & {r[OFFSET] for r in gone}
        stay = {r[OFFSET] for r in self.lanes.held_back_records()} - self.suspected.keys()
        assert all(offset % 3 != partition for offset in stay)
        self.given_up |= {r[OFFSET] for r in gone}

    @invariant()
    def what_is_done_is_not_kept(self) -> None:
        assert self.lanes._table.in_flight.keys() == {chunk.number for chunk in self.chunks}

    @invariant()
    def what_is_held_back_is_known(self) -> None:
        assert self.lanes.held_back == len(list(self.lanes.held_back_records()))

    @invariant()
    def what_is_kept_back_is_counted(self) -> None:
        places = list(self.lanes._queues.later)
        held = [
            h for p in places for h in ((p,) if isinstance(p, Held) else self.lanes._table.held[p])
        ]
        new = [h for h in held if h.suspect is None and h.first_sent is None]
        due = [sum(is_due(h.record) for h in some) for some in (held, new)]
        counts = (len(held), due[0], len(new) - due[1], due[1])
        assert self.lanes.kept_back.now == counts

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        in_flight = sum(
            len(list(c.remaining())) for chunks in self.workers.values() for c in chunks
        )
        finished = [o for done in self.finished.values() for o in done]
        assert len(finished) == len(set(finished))
        total = in_flight + len(finished) + len(self.given_up) + len(self.lanes)
        assert total == self.next_offset

    def teardown(self) -> None:
        """Everything comes to its end, without a deadlock between lanes."""
        self.lanes.kept_back.gone(SUSPICION.backends)
        self.lanes.kept_back.look_ups_work()
        self.lanes.limit({}, {})
        self.limit("slow", 1)
        self.limit("call", 1)
        self.limit("quick", None)
        self.limit("new", 2)
        for _ in range(4 * self.next_offset + 10):
            for chunks in self.workers.values():
                while chunks:
                    chunk = chunks.pop(0)
                    self.done(chunk)
                    self.lanes.release(chunk)
            if not len(self.lanes):
                break
            self.lanes.kept_back.try_elsewhere()
            for index in range(3):
                self.take_calls(index, 3)
                self.take(index, 4, alone_first=False)
        assert not len(self.lanes)
        for key in (b"a", b"b", b"c"):
            expected = [o for o in self.submitted[key] if o not in self.given_up]
            assert self.finished[key] == expected


LanesModel.TestCase.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=40
)
TestLanesModel = LanesModel.TestCase
