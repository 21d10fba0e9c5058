"""A suspect that the database refuses to look up, though it works: who waits, and for how long."""

from __future__ import annotations

from itertools import pairwise

import pytest

from feedback.contract.record import OFFSET
from processing.pool.trying_again import GIVE_BACK_EVERY, LONGEST_PAUSE
from tests.support.played_pool import START, Played, due, record, wants


def sent(played: Played, now: float, offset: int) -> tuple[int, int]:
    """Worker and chunk of the one record that is sent, which is this."""
    [(worker, chunk, offsets)] = played.sent(now)
    assert offsets == [offset]
    return worker, chunk


@pytest.fixture
def played() -> Played:
    """One record of worker 0, which died; then its look-up was refused, at 100 s."""
    played = Played(1)
    played.pool.submit([record(0, b"a")])
    assert played.sent(0.0) == [(0, 0, [0])]
    played.die(0, 0.0)
    worker, chunk = sent(played, 100.0, 0)
    played.report(worker, chunk, returned=[0], unended=[], refused=True)
    assert played.sent(100.0) == []
    return played


def tries(played: Played, begin: float, end: float) -> list[float]:
    """When it is sent in a loop that turns ten times a second, and refused each time."""
    found = []
    for now in (begin + n / 10 for n in range(int(10 * (end - begin)))):
        for worker, chunk, offsets in played.sent(now):
            assert offsets == [0]
            found.append(now)
            played.report(worker, chunk, returned=[0], unended=[], refused=True)
    return found


def test_it_is_tried_after_pauses_that_grow(played: Played) -> None:
    times = [100.0, *tries(played, 100.0, 300.0)]
    pauses = [after - before for before, after in pairwise(times)]
    assert 5 < len(pauses) < 20
    assert all(b > 1.5 * a for a, b in pairwise(pauses[:5]))
    assert max(pauses) < LONGEST_PAUSE + 1
    assert (played.pool.in_hand, played.pool.lanes.kept_back.now.records) == (1, 1)


def test_others_run_meanwhile_and_what_is_behind_it_stays_there(played: Played) -> None:
    played.pool.submit([record(1, b"a"), record(2, b"b")])
    worker, chunk = sent(played, 100.0, 2)
    played.report(worker, chunk)
    assert played.sent(100.0) == []
    worker, chunk = sent(played, 110.0, 0)
    played.report(worker, chunk, unended=[])
    worker, chunk = sent(played, 110.0, 1)
    played.report(worker, chunk)
    assert (played.pool.in_hand, played.pool.lanes.kept_back.refusing) == (0, False)


def test_a_look_up_that_works_sets_the_others_free_and_the_next_pause_is_short() -> None:
    played = Played(1, "none")
    played.pool.submit([record(n) for n in range(4)])
    played.sent(0.0)
    played.die(0, 0.0)
    for _ in range(4):
        [(worker, chunk, _)] = played.sent(100.0)
        played.report(worker, chunk, returned=[0], unended=[], refused=True)
    for now in (110.0, 120.0, 130.0):
        [(worker, chunk, [first])] = played.sent(now)
        played.report(worker, chunk, returned=[0], unended=[], refused=True)
        assert played.sent(now) == [], "all of them are refused, most likely"
    seen: list[int] = []
    while found := played.sent(150.0):
        [(worker, chunk, offsets)] = found
        seen += offsets
        bad = offsets == [first]
        played.report(worker, chunk, unended=[], refused=bad, returned=[0] if bad else [])
    assert sorted(seen) == [0, 1, 2, 3]
    [(worker, chunk, [again])] = played.sent(153.0)
    assert again == first


def test_sessions_of_which_nobody_could_ask_are_left_as_they_were() -> None:
    """The question which of them have ended was refused, too."""
    played = Played(1, "none")
    played.pool.submit([record(0), record(1)])
    played.sent(0.0)
    played.die(0, 0.0)
    [(worker, chunk, _)] = played.sent(100.0)
    played.report(worker, chunk, returned=[0], unended=[(0, START)])
    times = []
    for now in (100.0 + n / 10 for n in range(600)):
        for worker, chunk, _ in played.sent(now):
            times.append(now)
            played.report(worker, chunk, returned=[0], refused=True)
    assert len(times) < 30


def test_its_end_that_nobody_knows_waits_as_well(played: Played) -> None:
    """What must not be entered again comes back as of unknown outcome."""
    worker, chunk = sent(played, 110.0, 0)
    played.report(worker, chunk, unclear=[0], unended=[], refused=True)
    assert played.sent(110.0) == []


def test_claimed_rows_behind_it_are_given_back(played: Played) -> None:
    pool = played.pool
    pool.submit([record(1, b"z")])
    worker, chunk = sent(played, 100.0, 1)
    played.report(worker, chunk)
    (want,) = wants(pool, 100.0)
    row = due(1)
    pool.claimed(want.order, [((*row[:4], b"a", *row[5:]), None)], 100.0)
    assert played.sent(100.0) == []
    assert tries(played, 100.0, 100.0 + GIVE_BACK_EVERY - 1)
    assert not pool.may_exceed(100.0 + GIVE_BACK_EVERY - 1)
    assert pool.may_exceed(100.0 + GIVE_BACK_EVERY)
    assert len(pool.take_excess(100.0 + GIVE_BACK_EVERY)) == 1


def test_at_a_stop_it_is_given_up_as_a_suspect(played: Played) -> None:
    pool = played.pool
    pool.stop()
    pool.take_unstarted()
    pool.died(1, "exit code 0", None, 100.0)
    assert [r[OFFSET] for r, suspect in pool.take_suspects() if suspect] == [0]
    assert pool.in_hand == 0
