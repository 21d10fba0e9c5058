"""The queue in front of the workers, against a simple model of what may run when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.record import OFFSET, TYPE, Record, record_size
from processing.ipc.frames import Suspect
from processing.pool import lane_order
from processing.pool.chunk import Chunk
from processing.pool.lane_order import TAGS, LaneOrder
from processing.pool.lanes import Lanes
from processing.pool.worker_time import OVERHEAD, Costs
from tests.support.lanes import known_costs, offsets, record, take

SUSPICION = Suspect(None, ((4711, "then"),), ("token",), 1)


def lanes_of(*records: Record, ordering: str = "key") -> Lanes:
    lanes = Lanes(ordering, known_costs())  # type: ignore[arg-type]
    lanes.submit(records)
    return lanes


def test_a_key_in_flight_holds_back_only_its_own_records() -> None:
    lanes = lanes_of(record(1, b"a"), record(2, b"a"), record(3, b"b"), record(4, b"a"))
    first = take(lanes, 1, worker=1, limit=1)
    assert offsets(first) == [1]
    assert offsets(take(lanes, 2, worker=2)) == [3]
    assert not take(lanes, 3, worker=3).records
    lanes.release(first)
    assert offsets(take(lanes, 4, worker=3)) == [2, 4]


def test_no_key_waits_for_another() -> None:
    lanes = lanes_of(*(record(n, b"slow-%d" % n) for n in range(500)))
    assert len(take(lanes, 1, worker=1).records) == 500
    lanes.submit([record(n, b"quick-%d" % n) for n in range(1000, 3000)])
    taken = [len(take(lanes, number, worker=2).records) for number in range(2, 6)]
    assert (taken, lanes.held_back) == ([500] * 4, 0)


def test_of_lanes_that_are_done_nothing_is_kept() -> None:
    table = LaneOrder("key")
    for number in range(1000):
        table.in_flight[number] = chunk = Chunk(number, 1)
        for n in range(500):
            table.bind(hash((number, n)), chunk)
        table.end(chunk)
    assert len(table.tags) <= TAGS + 500


def test_what_is_known_of_lanes_behind_calls_does_not_grow_with_what_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_order, "TAGS", 100)
    lanes = Lanes("key", known_costs())
    lanes.run_beside({"call": 3})
    lanes.submit([record(n, b"%d" % n) for n in range(1000)])
    for number in range(1, 50):
        lanes.submit([record(n, b"%d" % n) for n in range(number * 1000, number * 1000 + 500)])
        lanes.release(take(lanes, number))
    assert len(lanes) == 1000
    assert len(lanes._queues._lanes_of_rest) <= 2 * 1500 + 500


def test_records_without_a_key_have_no_order() -> None:
    lanes = lanes_of(record(1), record(2), record(3))
    assert offsets(take(lanes, 1, worker=1, limit=1)) == [1]
    assert offsets(take(lanes, 2, worker=2)) == [2, 3]


def test_partition_order_binds_records_without_a_key() -> None:
    lanes = lanes_of(record(1), record(2), ordering="partition")
    take(lanes, 1, worker=1, limit=1)
    assert not take(lanes, 2, worker=2).records


def test_what_waits_for_a_chunk_may_follow_in_the_next_chunk_of_the_same_worker() -> None:
    lanes = lanes_of(*(record(n, b"hot") for n in range(6)))
    first = take(lanes, 1, worker=1, limit=2)
    assert not take(lanes, 2, worker=2).records
    second = Chunk(3, 1)
    assert lanes.take_quick(second, 2, [first])
    assert offsets(second) == [2, 3]
    lanes.release(first)
    assert not take(lanes, 4, worker=2).records
    lanes.release(second)
    assert offsets(take(lanes, 5, worker=2)) == [4, 5]


def test_a_slow_kind_goes_alone_and_does_not_cut_the_others() -> None:
    lanes = lanes_of(record(1, b"a"), record(2, b"b", "slow"), record(3, b"c"))
    assert offsets(take(lanes, 1)) == [1, 3]
    alone = take(lanes, 2, worker=2)
    assert offsets(alone) == [2]
    assert alone.alone


def test_an_unmeasured_kind_goes_alone_until_it_is_known_to_be_quick() -> None:
    costs = Costs()
    lanes = Lanes("key", costs)
    lanes.submit([record(n, b"%d" % n, "new") for n in range(4)] + [record(4, None, "new")])
    assert len(take(lanes, 1).records) == 1
    costs.observe("new", 1, 0.001)
    chunk = take(lanes, 2)
    assert len(chunk.records) == 4


def test_a_chunk_is_cut_where_it_would_take_too_long_or_grow_too_large() -> None:
    costs = Costs()
    costs.observe("ten-ms", 1, 0.01)
    lanes = Lanes("key", costs)
    lanes.submit([record(n, None, "ten-ms") for n in range(20)])
    assert len(take(lanes, 1).records) == 5
    lanes = lanes_of(*(record(n, size=400_000) for n in range(4)))
    assert len(take(lanes, 1).records) == 2
    headers = [("x-trace", b"x" * 200_000)]
    lanes = lanes_of(*((*record(n, b"k" * 200_000)[:6], headers, "quick", None) for n in range(4)))
    assert len(take(lanes, 1).records) == 2, "keys and headers count"
    lanes = lanes_of(record(1, size=3_000_000), record(2))
    assert offsets(take(lanes, 1)) == [1]


def test_recalled_records_go_elsewhere_unless_their_lane_still_runs() -> None:
    lanes = lanes_of(record(1, b"a"), record(2, b"b"), record(3, b"a"))
    chunk = take(lanes, 1, worker=1)
    lanes.take_back(chunk, [1, 2], [chunk])
    assert offsets(take(lanes, 2, worker=2)) == [2]
    lanes.release(chunk)
    assert offsets(take(lanes, 3, worker=2)) == [3]


def test_a_dead_workers_records_come_back_first_one_by_one_and_in_order() -> None:
    lanes = lanes_of(*(record(n, b"a") for n in range(4)))
    chunk = take(lanes, 1, worker=1, limit=2)
    lanes.put_back(chunk, {0: SUSPICION, 1: SUSPICION})
    seen = []
    while (again := take(lanes, 10 + len(seen), worker=2)).records:
        seen.append((offsets(again), again.suspect))
        lanes.release(again)
    assert seen == [([0], SUSPICION), ([1], SUSPICION), ([2, 3], None)]


def test_empty_gives_up_everything_but_suspects() -> None:
    lanes = lanes_of(
        record(1, b"a"),
        record(2, b"a"),
        record(3, b"b", "slow"),
        record(4, None, "slow"),
        record(5),
    )
    chunk = take(lanes, 1, limit=1)
    take(lanes, 2, worker=2)
    lanes.put_back(chunk, {0: SUSPICION})
    left = {r[OFFSET] for r in lanes.take_out(lambda _: True)}
    assert left == {2, 3, 4}
    assert len(lanes) == 1
    again = take(lanes, 3, worker=3)
    assert offsets(again) == [1]
    lanes.release(again)
    lanes.submit([record(6, b"a")])
    assert offsets(take(lanes, 4)) == [6]


def limited(lanes: Lanes, most: int, *, in_chunk: int = 500) -> None:
    lanes.limit({"few": most}, {"few": in_chunk})


def quick_few() -> Costs:
    costs = known_costs()
    costs.observe("few", 1, 0.0001)
    return costs


@pytest.mark.parametrize("key", [None, b"a"])
def test_a_limited_type_holds_up_nothing_else(key: bytes | None) -> None:
    lanes = Lanes("key", quick_few())
    limited(lanes, 2)
    keys = [None if key is None else b"%d" % n for n in range(6)]
    lanes.submit([record(n, keys[n], "few") for n in range(6)])
    lanes.submit([record(n) for n in range(6, 9)])
    first = take(lanes, 1)
    assert sorted(offsets(first)) == [0, 1, 6, 7, 8]
    assert not take(lanes, 2, worker=2).records
    lanes.take_back(first, [i for i, r in enumerate(first.records) if r[OFFSET] == 1], [first])
    second = take(lanes, 3, worker=2)
    assert len(second.records) == 1
    lanes.release(first)
    third = take(lanes, 4, worker=3)
    assert len(third.records) == 1
    lanes.release(second)
    lanes.release(third)
    assert len(take(lanes, 5).records) == 2


def test_a_limited_type_that_goes_alone_goes_side_by_side_up_to_its_limit() -> None:
    lanes = lanes_of(*(record(n, b"%d" % n, "few") for n in range(5)))
    limited(lanes, 3)
    lanes.submit([record(9, None, "slow")])
    chunks = [take(lanes, n, worker=n) for n in range(6)]
    assert sorted(o for c in chunks for o in offsets(c)) == [0, 1, 2, 9]


def test_what_may_run_is_spread_over_chunks() -> None:
    lanes = Lanes("none", quick_few())
    limited(lanes, 4, in_chunk=2)
    lanes.submit([record(n, None, "few") for n in range(9)])
    assert [offsets(take(lanes, n, worker=n)) for n in range(3)] == [[0, 1], [2, 3], []]


@pytest.mark.parametrize("key", [None, b"a"])
def test_what_does_not_fit_keeps_its_place(key: bytes | None) -> None:
    lanes = Lanes("key", quick_few())
    limited(lanes, 9)
    large = [record(n, key, "few", size=400_000) for n in range(5)]
    lanes.submit(large)
    taken = []
    for number in range(1, 4):
        chunk = take(lanes, number)
        taken.append(offsets(chunk))
        lanes.release(chunk)
    assert taken == [[0, 1], [2, 3], [4]]


def test_a_key_waits_behind_its_limited_record() -> None:
    lanes = Lanes("key", quick_few())
    limited(lanes, 1)
    lanes.submit([record(0, b"a", "few"), record(1, b"b", "few"), record(2, b"b"), record(3, b"c")])
    first = take(lanes, 1)
    assert offsets(first) == [3, 0]
    assert not take(lanes, 2, worker=2).records
    lanes.release(first)
    assert offsets(take(lanes, 3, worker=2)) == [1, 2]


def test_a_limit_counts_what_is_in_flight_when_it_comes_and_lets_go_when_it_goes() -> None:
    lanes = Lanes("key", quick_few())
    lanes.submit([record(n, None, "few") for n in range(6)])
    take(lanes, 1, limit=3)
    limited(lanes, 2)
    assert lanes.in_use == {"few": 3}
    assert not take(lanes, 2, worker=2).records
    lanes.limit({}, {})
    assert offsets(take(lanes, 3, worker=2)) == [3, 4, 5]


def test_a_suspect_of_a_paused_type_is_settled_all_the_same() -> None:
    lanes = lanes_of(record(0, b"a", "few"), record(1, b"b", "few"))
    chunks = [take(lanes, n, worker=n) for n in range(2)]
    limited(lanes, 0)
    for chunk in chunks:
        lanes.put_back(chunk, {0: SUSPICION})
    again = take(lanes, 5)
    assert offsets(again) == [0]
    assert not take(lanes, 6, worker=2).records
    lanes.release(again)
    assert offsets(take(lanes, 7, worker=2)) == [1]


def test_excess_is_what_came_last() -> None:
    lanes = Lanes("key", quick_few())
    limited(lanes, 1)
    keys = [None, b"a", b"a", None, b"b"]
    lanes.submit([record(n, keys[n], "few") for n in range(5)])
    assert offsets(take(lanes, 1, worker=1)) == [0]
    assert lanes.waiting == {"few": 3}
    assert [r[OFFSET] for r in lanes.take_excess({"few": 1})] == [4, 3]
    assert [r[OFFSET] for r in lanes.take_excess({"few": 0})] == [1, 2]
    assert len(lanes) == 0
    lanes.submit([record(5, b"a")])
    assert offsets(take(lanes, 2, worker=2)) == [5]


@pytest.mark.parametrize("ordering", ["key", "none"])
def test_taking_is_fair_to_arrival(ordering: str) -> None:
    lanes = lanes_of(*(record(n) for n in range(10)), ordering=ordering)
    assert offsets(take(lanes, 1)) == list(range(10))


@pytest.mark.parametrize("later_first", [True, False])
def test_what_comes_back_takes_the_place_that_it_had(later_first: bool) -> None:
    lanes = lanes_of(*(record(n, b"a") for n in range(6)))
    first = take(lanes, 1, worker=1, limit=2)
    second = Chunk(2, 1)
    assert lanes.take_quick(second, 2, [first])
    if later_first:
        lanes.take_back(second, [0, 1], [first, second])
    lanes.put_back(first, {0: SUSPICION, 1: SUSPICION})
    if not later_first:
        lanes.take_back(second, [0, 1], [second])
    lanes.put_back(second, {})
    seen: list[int] = []
    while (again := take(lanes, 10 + len(seen), worker=2)).records:
        seen += offsets(again)
        lanes.release(again)
    assert seen == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("key", [b"a", None])
def test_a_recalled_suspect_stays_one(key: bytes | None) -> None:
    lanes = lanes_of(record(1, key))
    lanes.put_back(take(lanes, 1), {0: SUSPICION})
    looked_up = take(lanes, 2)
    lanes.take_back(looked_up, [0], [looked_up])
    lanes.release(looked_up)
    again = take(lanes, 3)
    assert (offsets(again), again.suspect) == ([1], SUSPICION)


def test_what_could_not_go_as_it_came_is_known() -> None:
    lanes = lanes_of(record(1), record(2), record(3, b"a"), record(4, b"a"))
    looked_at = take(lanes, 1)
    lanes.put_back(looked_at, {0: SUSPICION})
    # Without a key and above suspicion, 2 goes as if it had just come.
    assert sorted(r[OFFSET] for r in lanes.held_back_records()) == [1, 3, 4]
    assert lanes.held_back == 3


@given(st.lists(st.sampled_from(["quick", "other", "slow", "limited", None]), max_size=12))
def test_of_each_record_its_own_kind_says_whether_it_goes_and_what_it_takes(
    kinds: list[str | None],
) -> None:
    """Also where it follows others of its kind, or one that may not go."""
    costs = {"quick": 0.0001, "other": 0.0003, "limited": 0.0001, "topic:topic": 0.0002}
    known = known_costs()
    for kind, seconds in costs.items():
        known.observe(kind, 1, seconds)
    lanes = Lanes("key", known)
    lanes.limit({"limited": 0}, {})
    records = [(*record(n)[:TYPE], kind, None) for n, kind in enumerate(kinds)]
    lanes.submit(records)
    chunk = Chunk(1, 1)
    lanes.take_quick(chunk, 500)
    went = [r for r in records if r[TYPE] not in {"slow", "limited"}]
    assert chunk.records == went
    taken = sum(costs[r[TYPE] or "topic:topic"] for r in went)
    assert chunk.seconds == pytest.approx(OVERHEAD + taken)
    assert chunk.size == sum(map(record_size, went))
