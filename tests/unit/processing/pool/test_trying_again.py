"""A dead worker's session that does not end: who waits for it, and who does not."""

from __future__ import annotations

from typing import Any

import pytest

from feedback.contract.record import OFFSET, Record, claim_of
from processing.ipc.frames import RunChunk
from processing.pool.actions import Send, Unended
from processing.pool.backlog import Backlog, backlogs_of
from processing.pool.trying_again import GIVE_BACK_EVERY, LOOK_AGAIN
from processing.stuck_sessions import SAY_AGAIN
from tests.support.played_pool import START, Played, due, record, wants


@pytest.fixture
def played() -> Played:
    """Three records of worker 0, which died; its backend 0 does not end."""
    played = Played(1)
    played.pool.submit([record(0, b"a"), record(1, b"b"), record(2)])
    assert played.sent(0.0) == [(0, 0, [0, 1, 2])]
    played.die(0, 0.0)
    [(worker, chunk, offsets)] = played.sent(100.0)
    assert len(offsets) == 1
    played.pool.submit([record(3, b"a"), record(4, b"c")])
    played.report(worker, chunk, returned=[0], unended=[(0, START)])
    return played


def test_all_others_run_and_its_own_are_tried_one_at_a_time(played: Played) -> None:
    found = played.plan(100.0)
    [told] = [action for action in found if isinstance(action, Unended)]
    assert (told.backend, told.worker) == ((0, START), 0)
    [send] = [action for action in found if isinstance(action, Send)]
    assert isinstance(send.frame, RunChunk)
    # Of the key of a suspect nothing comes before it.
    assert [r[OFFSET] for r in send.frame.records] == [4]
    played.report(1, send.frame.number)
    assert played.plan(100.0 + LOOK_AGAIN / 2) == []
    [(worker, chunk, offsets)] = played.sent(100.0 + LOOK_AGAIN)
    assert len(offsets) == 1
    played.report(worker, chunk, returned=[0], unended=[(0, START)])
    assert played.plan(100.0 + LOOK_AGAIN) == [], "the others of it have not changed"
    assert played.pool.in_hand == 4


def test_the_log_says_so_now_and_then(played: Played) -> None:
    assert [type(action) for action in played.plan(100.0)] == [Unended, Send]
    (again,) = (a for a in played.plan(100.0 + SAY_AGAIN) if isinstance(a, Unended))
    assert {r[OFFSET] for r in again.waiting} <= {0, 1, 2, 3}


def test_all_are_looked_up_once_it_has_ended(played: Played) -> None:
    [(_, other, _)] = played.sent(100.0)
    played.report(1, other)
    [(worker, chunk, offsets)] = played.sent(100.0 + LOOK_AGAIN)
    seen = offsets
    played.report(worker, chunk)
    while sent := played.sent(101.0 + LOOK_AGAIN):
        [(worker, chunk, offsets)] = sent
        seen += offsets
        played.report(worker, chunk)
    assert sorted(seen) == [0, 1, 2, 3]
    assert seen.index(0) < seen.index(3)
    assert (played.pool.in_hand, played.pool.lanes.kept_back.unended) == (0, set())


def test_a_backend_that_stays_holds_up_no_suspect_of_another() -> None:
    played = Played(2, "none")
    played.pool.submit([record(n) for n in range(4)])
    assert [(w, o) for w, _, o in played.sent(0.0)] == [(0, [0, 1]), (1, [2, 3])]
    played.die(0, 0.0)
    played.die(1, 0.0)
    first, second = played.sent(100.0)
    for worker, chunk, offsets in (first, second):
        stays = offsets[0] < 2
        fields: dict[str, Any] = {"returned": [0], "unended": [(0, START)]} if stays else {}
        played.report(worker, chunk, **fields)
    while sent := played.sent(100.0):
        for worker, chunk, offsets in sent:
            fields = {"returned": [0], "unended": [(0, START)]} if offsets[0] < 2 else {}
            played.report(worker, chunk, **fields)
    assert {r[OFFSET] for r in played.pool.lanes.kept_back.waiting_for((0, START))} == {0, 1}
    assert played.pool.in_hand == 2


def test_rows_that_wait_for_it_keep_no_others_from_being_claimed() -> None:
    played = Played(1, "none")
    pool = played.pool
    pool.submit([record(n) for n in range(3)])
    played.sent(0.0)
    (want,) = wants(pool, 0.0)
    played.report(0, 0)
    pool.claimed(want.order, [(due(n), None) for n in range(want.most)], 0.0)
    [(worker, chunk, offsets)] = played.sent(0.0)
    assert len(offsets) == want.most
    played.die(worker, 0.0)
    [(worker, chunk, _)] = played.sent(100.0)
    played.report(worker, chunk, returned=[0], unended=[(0, START)])
    played.plan(100.0)
    assert wants(pool, 100.0) != []


def test_at_a_stop_they_are_given_up_with_the_rest(played: Played) -> None:
    [(worker, chunk, _)] = played.sent(100.0)
    played.report(worker, chunk)
    pool = played.pool
    pool.stop()
    pool.take_unstarted()
    pool.died(worker, "exit code 0", None, 100.0)
    assert {r[OFFSET] for r, suspect in pool.take_suspects() if suspect} == {0, 1, 2}
    assert pool.in_hand == 0


# What comes for the same keys meanwhile


def arrive(played: Played, number: int, records: list[Record], now: float) -> list[Record]:
    """They come, and all that can run is run; what is given up for lack of room."""
    played.pool.submit(records)
    while sent := played.sent(now):
        for worker, chunk, _ in sent:
            played.report(worker, chunk)
    excess = played.pool.take_excess(now) if played.pool.may_exceed(now) else []
    assert number >= played.pool.in_hand
    return excess


def test_messages_behind_them_do_not_fill_the_bound(played: Played) -> None:
    """The log of partitions shows them, so that those are paused; and many of them are parked."""
    pool, bound = played.pool, played.pool.settings.max_in_hand
    [(_, other, _)] = played.sent(100.0)
    played.report(1, other)
    parked: list[Record] = []
    for first in range(10, 2 * bound, 100):
        some = [record(first + n, b"a" if n % 2 else b"c") for n in range(100)]
        parked += arrive(played, bound // 2, some, 100.0)
    assert {r[4] for r in parked} == {b"a"}, "others go on"
    offsets = [r[OFFSET] for r in parked]
    assert len(set(offsets)) == len(offsets)
    assert not {0, 1, 2} & set(offsets), "nobody knows what became of suspects"
    assert pool.lanes.kept_back.now.messages_behind == pool.in_hand - 3


def test_messages_that_only_a_decoder_reads_stay(played: Played) -> None:
    """Nobody could run them from a row: parked they would be dead letters, though all is well."""
    pool, bound = played.pool, played.pool.settings.max_in_hand
    [(_, other, _)] = played.sent(100.0)
    played.report(1, other)
    pool.submit([record(10 + n, b"a") for n in range(bound // 2)])
    played.plan(100.0)
    assert pool.may_exceed(100.0)
    assert pool.take_excess(100.0, ["topic"]) == []
    assert pool.take_excess(100.0, ["another"]) != []


def test_partitions_whose_messages_stand_behind_them_are_known(played: Played) -> None:
    pool = played.pool
    [(_, other, _)] = played.sent(100.0)
    played.report(1, other)
    arrive(played, 1000, [record(10 + n, b"a") for n in range(50)], 100.0)

    def backlog() -> Backlog:
        lanes = pool.lanes
        records = lanes.held_back_records()
        return backlogs_of(records, pool.costs, lanes.kept_back.records())["topic", 0]

    assert (backlog().requests, backlog().standing) == (54, 54)
    # Those whose suspect is tried stand as still as before, most likely.
    seen = set()
    for n in range(1, 4):
        [(worker, chunk, [offset])] = played.sent(100.0 + n * LOOK_AGAIN)
        seen.add(offset)
        assert backlog().standing == 53
        played.report(worker, chunk, returned=[0], unended=[(0, START)])
    assert seen == {0, 1, 2}


def test_claimed_rows_behind_them_are_given_back() -> None:
    played = Played(1)
    pool = played.pool
    pool.submit([record(0, b"a")])
    played.sent(0.0)
    played.die(0, 0.0)
    [(worker, chunk, _)] = played.sent(100.0)
    played.report(worker, chunk, returned=[0], unended=[(0, START)])
    assert played.sent(100.0) == []
    (want,) = wants(pool, 100.0)
    rows = [(*due(n)[:4], b"a", *due(n)[5:]) for n in range(want.most)]
    pool.claimed(want.order, [(row, None) for row in rows], 100.0)
    assert played.sent(100.0) == []
    assert pool.lanes.kept_back.now.due == want.most
    assert wants(pool, 100.0) != [], "others are wanted beside them"
    assert not pool.may_exceed(100.0)
    at = 100.0 + GIVE_BACK_EVERY
    assert pool.may_exceed(at)
    assert sorted(map(claim_of, pool.take_excess(at))) == sorted(map(claim_of, rows))
    assert (pool.in_hand, len(pool.wants)) == (1, 0)


def test_what_needs_no_look_at_the_journal_waits_for_no_session(played: Played) -> None:
    """Pure types: the next one is tried at once."""
    [(_, other, _)] = played.sent(100.0)
    played.report(1, other)
    now = 100.0 + LOOK_AGAIN
    seen: list[int] = []
    while sent := played.sent(now):
        [(worker, chunk, offsets)] = sent
        seen += offsets
        played.report(worker, chunk)
    assert sorted(seen) == [0, 1, 2, 3]


def test_what_is_kept_back_waits_for_no_worker(played: Played) -> None:
    """A share of what waits is sent to each worker, and only what can go is shared."""
    [(_, other, _)] = played.sent(100.0)
    played.report(1, other)
    lanes = played.pool.lanes
    assert len(lanes) == lanes.kept_back.now.records == played.pool.in_hand == 4
