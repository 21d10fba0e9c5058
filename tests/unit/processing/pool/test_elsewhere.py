"""A record that whoever had it before may be at yet: it keeps its place, and is tried again."""

from __future__ import annotations

import pytest

from feedback.contract.record import OFFSET
from processing.pool.trying_again import EACH_LOOK, LOOK_ELSEWHERE, SHARE
from tests.support.played_pool import Played, record


def come_back(played: Played, now: float, offset: int) -> None:
    """The one record that is sent is this, and comes back."""
    [(worker, chunk, offsets)] = played.sent(now)
    assert offsets == [offset]
    played.report(worker, chunk, returned=[0], alone=[0], held_up=[0.0], elsewhere=[0])


@pytest.fixture
def played() -> Played:
    played = Played(1)
    played.pool.submit([record(0, b"a"), record(1, b"a"), record(2, b"b")])
    [(worker, chunk, offsets)] = played.sent(100.0)
    assert offsets == [0, 1, 2]
    played.report(worker, chunk, returned=[0, 1], alone=[0], held_up=[0.0], elsewhere=[0])
    assert played.sent(100.0) == []
    return played


def test_it_is_tried_alone_after_each_pause_and_what_is_behind_it_waits(played: Played) -> None:
    now = 100.0
    for _ in range(50):
        assert played.sent(now + LOOK_ELSEWHERE - 0.1) == []
        now += LOOK_ELSEWHERE
        come_back(played, now, 0)
    assert played.pool.lanes.kept_back.now.records == 2
    [(worker, chunk, _)] = played.sent(now + LOOK_ELSEWHERE)
    played.report(worker, chunk)
    [(worker, chunk, offsets)] = played.sent(now + LOOK_ELSEWHERE)
    assert offsets == [1]
    played.report(worker, chunk)
    assert (played.pool.in_hand, played.pool.lanes.kept_back.now.records) == (0, 0)
    played.plan(now + 2 * LOOK_ELSEWHERE)
    assert not played.pool.lanes.kept_back.elsewhere


def test_each_of_many_is_tried_after_each_pause() -> None:
    played = Played(1, "none")
    played.pool.submit([record(n) for n in range(20)])
    [(worker, chunk, _)] = played.sent(100.0)
    back = list(range(20))
    played.report(worker, chunk, returned=back, alone=back, held_up=[0.0] * 20, elsewhere=back)
    assert played.sent(100.0) == []
    for now in (102.0, 104.0, 106.0):
        seen = []
        while found := played.sent(now):
            [(worker, chunk, offsets)] = found
            seen += offsets
            played.report(worker, chunk, returned=[0], alone=[0], held_up=[0.0], elsewhere=[0])
        assert sorted(seen) == back


def test_hundreds_are_looked_at_more_rarely() -> None:
    played, many = Played(1, "none"), 400
    played.pool.submit([record(n) for n in range(many)])
    [(worker, chunk, _)] = played.sent(100.0)
    back = list(range(many))
    played.report(worker, chunk, returned=back, alone=back, held_up=[0.0] * many, elsewhere=back)
    begun: dict[int, int] = {}
    assert played.sent(100.0) == []
    for now in range(101, 151):
        while found := played.sent(float(now)):
            [(worker, chunk, _)] = found
            begun[now] = begun.get(now, 0) + 1
            played.report(worker, chunk, returned=[0], alone=[0], held_up=[0.0], elsewhere=[0])
    assert set(begun.values()) == {many}
    assert len(begun) == pytest.approx(50 / (EACH_LOOK * many), abs=1)


def test_one_that_died_with_its_worker_waits_as_a_suspect_and_is_tried(played: Played) -> None:
    [(worker, _, _)] = played.sent(100.0 + LOOK_ELSEWHERE)
    played.die(worker, 100.0 + LOOK_ELSEWHERE)
    come_back(played, 110.0, 0)
    assert played.sent(110.0) == []
    come_back(played, 110.0 + LOOK_ELSEWHERE, 0)


def test_others_run_meanwhile(played: Played) -> None:
    played.pool.submit([record(3, b"a"), record(4, b"c")])
    [(worker, chunk, offsets)] = played.sent(100.0)
    assert offsets == [4]
    played.report(worker, chunk)
    assert played.pool.in_hand == 3


def test_it_leaves_with_its_partition_or_at_a_stop(played: Played) -> None:
    pool = played.pool
    pool.submit([record(3, b"a")])
    pool.let_go({("topic", 0): 0})
    assert [r[OFFSET] for r in pool.departures.take()[1]] == [0, 1, 3]
    assert pool.in_hand == 0
    assert played.sent(200.0) == []


def test_messages_behind_it_do_not_fill_the_bound(played: Played) -> None:
    pool = played.pool
    pool.submit([record(n, b"a") for n in range(10, 11 + pool.settings.max_in_hand // SHARE)])
    assert played.sent(101.0) == []
    assert pool.may_exceed(101.0)
    excess = pool.take_excess(101.0)
    assert excess
    assert min(r[OFFSET] for r in excess) > 10, "the oldest stay"
