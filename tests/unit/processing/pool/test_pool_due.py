"""Due rows in the pool: how they come, share it with fresh records, and go."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from feedback.contract.record import CLAIM, NOWHERE, OFFSET, Record, claim_of, is_due
from processing.ipc.frames import (
    LimitsFound,
    Recall,
    RenewCalls,
    RenewClaims,
    Report,
    RowDueIn,
    RunChunk,
    Suspect,
    WantRows,
)
from processing.ipc.progress import Running
from processing.pool.actions import Died, Send, Spawn, Tell
from processing.pool.demand import PATIENCE
from processing.pool.pool import Pool
from processing.settings import PoolSettings

BACKEND = (4711, "2026-01-01 00:00:00+00")


def fresh(offset: int, key: bytes | None = None) -> Record:
    return ("topic", 0, offset, 0, key, b"{}", [], "quick", None)


def due(name: str, order: int = 1, key: bytes | None = None, kind: str = "quick") -> Record:
    headers: Any = [("ce_id", name.encode()), ("ce_type", kind.encode())]
    return ("topic", NOWHERE, NOWHERE, 0, key, b"{}", headers, kind, order)


def report(chunk: int, **fields: Any) -> Report:
    plain = Report(chunk, [], [], {}, {}, database_up=True)
    return plain._replace(**fields)


def pool_with(workers: int = 1, seconds: float = 0.0001, **settings: Any) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i", max_due=100, **settings))
    pool.costs.observe("quick", 1, seconds)
    for action in pool.plan(0.0):
        assert isinstance(action, Spawn)
        pool.crew.connected(action.worker, BACKEND)
        pool.ready(action.worker)
    return pool


def frames(actions: list[Any], kind: type[Any]) -> list[Any]:
    return [a.frame for a in actions if isinstance(a, Tell) and isinstance(a.frame, kind)]


def sent(actions: list[Any]) -> list[list[tuple[bool, int]]]:
    """Of each chunk, whether each record comes from the queue, and its claim order or offset."""
    return [
        [(is_due(r), r[OFFSET] if r[CLAIM] is None else r[CLAIM]) for r in a.frame.records]
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RunChunk)
    ]


def test_rows_are_wanted_once_a_worker_is_ready() -> None:
    pool = Pool(PoolSettings(workers=1, max_due=100))
    pool.plan(0.0)
    assert pool.ask(0.0) == []
    pool.crew.connected(0, BACKEND)
    pool.ready(0)
    assert frames(pool.ask(0.1), WantRows) == [WantRows(1, 100, {}, [])]
    assert pool.ask(0.2) == []


def test_due_and_fresh_records_share_chunks() -> None:
    pool = pool_with()
    pool.submit([fresh(1), fresh(2)])
    pool.claimed(1, [(due("a"), None)], 0.0)
    pool.submit([fresh(3)])
    assert sent(pool.plan(0.1)) == [[(True, 1), (False, 1), (False, 2), (False, 3)]]
    assert (pool.in_hand, len(pool.wants)) == (4, 1)
    pool.report(0, report(0))
    assert (pool.in_hand, pool.in_hand_bytes, len(pool.wants)) == (0, 0, 0)


@pytest.mark.parametrize("backlog, others", [(True, False), (False, True)])
@pytest.mark.parametrize("alone", [False, True])
def test_neither_a_backlog_in_kafka_nor_one_in_the_queue_keeps_the_other_waiting(
    backlog: bool, others: bool, alone: bool
) -> None:
    pool = pool_with(seconds=1.0 if alone else 0.001)

    def come(due_rows: bool, names: range) -> None:
        if due_rows:
            pool.claimed(names.start, [(due(f"d{n}"), None) for n in names], 0.0)
        else:
            pool.submit([fresh(n) for n in names])

    come(backlog, range(1000, 3000))
    come(others, range(5000, 5010))
    chunks: deque[list[tuple[int, int]]] = deque()
    ran: list[int] = []
    for number in range(30):
        chunks.extend(sent(pool.plan(0.1)))
        ran += [partition for partition, _ in chunks.popleft()]
        pool.report(0, report(number))
        if ran.count(others) == 10:
            break
    assert ran.count(others) == 10
    assert ran.count(backlog) <= (12 if alone else 120)


def test_due_rows_of_a_limited_type_do_not_keep_those_of_others_in_the_queue() -> None:
    pool = pool_with(4)
    pool.limit_by_app({"slow": 1})
    [want] = frames(pool.ask(0.0), WantRows)
    pool.claimed(want.order, [(due(f"s{n}", kind="slow"), None) for n in range(100)], 0.0)
    pool.plan(0.1)
    # One runs, for long, and three workers have nothing to do.
    [want] = frames(pool.ask(1.0), WantRows)
    assert (want.most, want.paused) == (4, ["slow"])
    pool.claimed(want.order, [(due("q"), None)], 1.0)
    assert sent(pool.plan(1.1)) == [[(True, 1)]]


def limits_of(pool: Pool, now: float) -> dict[str, int]:
    """How many rows of each limited type the pool asks for now."""
    [want] = frames(pool.ask(now), WantRows)
    return dict(want.limits)


def test_of_a_limited_type_no_more_rows_come_than_go_soon() -> None:
    """Of one that nobody has measured, too: others may run the rest."""
    pool = pool_with(4)
    pool.limit_by_app({"slow": 1, "wide": 50})
    assert limits_of(pool, 0.0) == {"slow": 3, "wide": 12}
    pool.claimed(1, [(due(f"s{n}", kind="slow"), None) for n in range(3)], 0.0)
    pool.plan(0.1)
    assert limits_of(pool, 0.1) == {"slow": 0, "wide": 12}
    pool.report(0, report(0, times={"slow": (1, 20.0)}))
    assert limits_of(pool, 20.0)["slow"] == 1
    pool.costs.observe("wide", 1, 0.098)
    assert limits_of(pool, 21.0) == {"slow": 1, "wide": 80}


@pytest.mark.parametrize("seconds, rows", [(0.001, 100), (0.048, 40), (0.198, 10)])
def test_a_limited_type_of_short_runs_has_two_seconds_of_work_in_hand(
    seconds: float, rows: int
) -> None:
    pool = pool_with(4)
    pool.limit_by_app({"few": 1})
    pool.costs.observe("few", 1, seconds)
    assert limits_of(pool, 0.0) == {"few": rows}


def test_rows_of_a_type_that_was_limited_or_slowed_after_they_came_are_given_up() -> None:
    pool = pool_with(4)
    pool.limit_by_app({"slowed": 1})
    pool.costs.observe("slowed", 1, 0.001)
    rows = [due(f"{kind}{n}", kind=kind) for kind in ("slowed", "limited") for n in range(20)]
    pool.claimed(1, [(row, None) for row in rows], 0.0)
    pool.plan(0.1)
    pool.limit_by_app({"slowed": 1, "limited": 1})
    pool.costs.observe("slowed", 100, 2000.0)
    assert pool.take_excess(PATIENCE - 1) == []
    assert all(map(is_due, pool.take_excess(PATIENCE)))
    assert pool.lanes.waiting == {"slowed": 3, "limited": 3}


def test_rows_that_would_wait_for_long_are_given_up_for_others_to_run() -> None:
    pool = pool_with(seconds=5.0)
    pool.claimed(1, [(due(f"d{n}"), None) for n in range(90)], 0.0)
    pool.submit([fresh(1), fresh(2)])
    pool.plan(0.1)
    assert pool.take_excess(PATIENCE - 1) == []
    gone = pool.take_excess(PATIENCE)
    assert len(gone) > 80
    assert all(map(is_due, gone))
    assert (pool.in_hand, len(pool.wants)) == (92 - len(gone), 90 - len(gone))
    assert pool.take_excess(2 * PATIENCE) == []


def test_a_due_record_keeps_the_order_of_its_key_and_has_none_by_partition() -> None:
    pool = pool_with(2)
    pool.submit([fresh(1, b"k")])
    pool.plan(0.0)
    pool.claimed(1, [(due("a", key=b"k"), None)], 0.0)
    assert sent(pool.plan(0.1)) == []
    by_partition = pool_with(2, ordering="partition")
    by_partition.claimed(1, [(due("a"), None), (due("b"), None)], 0.0)
    assert len(sent(by_partition.plan(0.1))) == 2


def test_a_row_that_has_crashed_too_often_goes_alone_with_its_verdict() -> None:
    pool = pool_with()
    pool.claimed(1, [(due("dead"), "worker_died"), (due("a"), None)], 0.0)
    actions = pool.plan(0.1) + pool.report(0, report(0)) + pool.plan(0.2)
    suspects = [a.frame.suspect for a in actions if isinstance(a, Send)]
    assert sorted(suspects, key=str) == [None, Suspect("worker_died", (), ())]
    pool.report(0, report(1))
    assert (pool.in_hand, pool.in_hand_bytes) == (0, 0)


def test_a_death_makes_suspects_of_due_records_as_of_fresh_ones() -> None:
    pool = pool_with()
    pool.claimed(1, [(due("a"), None), (due("b"), None)], 0.0)
    pool.plan(0.1)
    [died] = pool.died(0, "signal SIGKILL", Running(0, 1, None, 0.1), 0.2)
    assert isinstance(died, Died)
    assert died.suspects == 2
    assert len(pool.wants) == 2
    [spawn] = pool.plan(0.3)
    assert isinstance(spawn, Spawn)
    pool.crew.connected(spawn.worker, BACKEND)
    pool.ready(spawn.worker)
    suspects = []
    for number in (1, 2):
        [send] = pool.plan(0.4)
        assert isinstance(send, Send)
        suspects.append((send.frame.records[0][6][0][1], send.frame.suspect[3]))
        pool.report(spawn.worker, report(number))
    assert suspects == [(b"a", 0), (b"b", 1)]


def test_a_waiting_row_that_was_written_wakes_the_maintenance() -> None:
    pool = pool_with()
    pool.submit([fresh(1), fresh(2)])
    pool.plan(0.0)
    assert frames(pool.report(0, report(0, due_in=2.5)), RowDueIn) == [RowDueIn(2.5)]


def test_leases_of_all_that_is_in_hand_are_renewed_and_told_to_a_new_maintenance() -> None:
    pool = pool_with()
    pool.ask(0.0)
    pool.claimed(1, [(due("a"), None), (due("b"), None)], 1.0)
    pool.plan(1.0)
    [(pairs, _)] = frames(pool.ask(20.0), RenewClaims)
    assert pairs == [("a", 1), ("b", 1)]
    # What was claimed under an order that was given so far, and is not here, nobody has.
    [told] = frames(pool.new_maintenance(), RenewClaims)
    assert told == RenewClaims(pairs, pool.wants.order)
    assert told.all_to > 0
    pool.report(0, report(0))
    assert frames(pool.ask(40.0), RenewClaims) == []
    assert frames(pool.new_maintenance(), RenewClaims)[0].claims == []
    assert len(frames(pool.ask(40.1), WantRows)) == 1
    pool.stop()
    assert frames(pool.new_maintenance(), RenewClaims) == []


def test_none_are_wanted_while_the_database_is_away_or_from_the_stop_on() -> None:
    pool = pool_with()
    pool.ask(0.0)
    pool.database(up=False)
    assert frames(pool.ask(0.1), WantRows) == [WantRows(2, 0, {}, [])]
    assert pool.ask(0.2) == []
    pool.database(up=True)
    assert frames(pool.ask(0.3), WantRows) == [WantRows(3, 100, {}, [])]
    pool.stop()
    assert frames(pool.ask(0.4), WantRows) == [WantRows(4, 0, {}, [])]


def test_paused_and_limited_types_are_not_asked_for() -> None:
    pool = pool_with()
    pool.limit(LimitsFound(1, None, {"a": (3, None, None, None)}, ["b"]))
    [(_, _, limits, paused, _)] = frames(pool.ask(0.0), WantRows)
    assert paused == ["b"]
    assert limits["a"] >= 3
    assert "b" not in limits


def test_suspects_can_be_taken_once_every_worker_has_gone() -> None:
    pool = pool_with()
    pool.submit([fresh(1, b"k"), fresh(2, b"k"), fresh(3)])
    pool.claimed(1, [(due("a"), None)], 0.0)
    pool.plan(0.1)
    pool.submit([fresh(4, b"k")])
    pool.stop()
    assert pool.take_suspects() == []
    pool.died(0, "signal SIGKILL", Running(0, 2, None, 0.1), 0.2)
    assert [r[OFFSET] for r in pool.take_unstarted()] == [4]
    suspects = pool.take_suspects()
    assert sorted(r[OFFSET] for r, _ in suspects) == [NOWHERE, 1, 2, 3]
    blamed = [(r[OFFSET], s.crashes) for r, s in suspects if isinstance(s, Suspect) and s.crashes]
    assert blamed == [(2, 1)]
    assert (pool.in_hand, pool.in_hand_bytes, len(pool.wants), len(pool.lanes)) == (0, 0, 0, 0)


def test_leases_of_calls_outside_are_renewed_while_their_chunk_is_in_hand() -> None:
    pool = pool_with()
    pool.ask(0.0)
    pool.submit([fresh(1)])
    pool.plan(1.0)
    assert frames(pool.ask(1.0), RenewCalls) == []
    [(tokens,)] = frames(pool.ask(15.0), RenewCalls)
    [chunk] = pool.workers[0].chunks
    assert tokens == [pool.token(chunk)]
    assert frames(pool.ask(16.0), RenewCalls) == []
    assert frames(pool.new_maintenance(), RenewCalls) == [RenewCalls(tokens)]
    pool.report(0, report(0))
    assert frames(pool.ask(31.0), RenewCalls) == []


def test_the_claims_of_suspects_are_renewed_until_the_last_was_looked_up() -> None:
    """They go one by one: a lease that nobody renews would run out before the last one's turn."""
    pool = pool_with()
    pool.submit([fresh(1), fresh(2), fresh(3, b"k")])
    pool.plan(0.0)
    pool.ask(0.0)
    pool.died(0, "signal SIGKILL", None, 1.0)
    assert frames(pool.ask(20.0), RenewCalls) == [RenewCalls(["i-0"])]
    for action in pool.plan(100.0):
        assert isinstance(action, Spawn)
        pool.crew.connected(action.worker, BACKEND)
        pool.ready(action.worker)
    for number, now in ((1, 120.0), (2, 140.0), (3, 160.0)):
        pool.plan(now)
        assert frames(pool.ask(now), RenewCalls) == [RenewCalls([f"i-{number}", "i-0"])]
        pool.report(1, report(number))
    assert frames(pool.ask(180.0), RenewCalls) == []


def test_what_others_keep_locked_goes_alone_and_behind_others_that_do() -> None:
    """Two of them are locked, over and over."""
    pool = pool_with(1)
    pool.submit([fresh(n) for n in range(4)])
    pool.plan(1.0)
    pool.report(0, report(0, returned=[0, 1, 2], alone=[0, 2], held_up=[0.0, 0.0]))
    order: list[int] = []
    for _ in range(6):
        for chunk in sent(pool.plan(1.1)):
            ((_due, number),) = chunk
            order.append(number)
        while chunks := pool.workers[0].chunks:
            back = [] if chunks[0].records[0][OFFSET] == 1 else [0]
            pool.report(
                0, report(chunks[0].number, returned=back, alone=back, held_up=[0.0 for _ in back])
            )
    assert order.count(1) == 1
    assert [n for n in order if n != 1][:4] in ([0, 2, 0, 2], [2, 0, 2, 0])


def test_the_quick_ones_have_as_much_time_as_a_locked_one_kept_the_worker_for() -> None:
    pool = pool_with(1)
    pool.submit([fresh(n) for n in range(100)])
    pool.plan(1.0)
    pool.report(0, report(0, returned=[0], alone=[0], held_up=[16.0]))
    sizes: list[int] = []
    for turn in range(1, 41):
        pool.submit([fresh(turn * 1000 + n) for n in range(600)])
        pool.plan(1.0 + turn)
        for chunk in list(pool.workers[0].chunks):
            sizes.append(len(chunk.records))
            back = [0] if chunk.alone else []
            held_up = [16.0 for _ in back]
            pool.report(0, report(chunk.number, returned=back, alone=back, held_up=held_up))
    assert sizes.count(1) <= 1, "16 s are as many as 300 chunks of quick ones"


def test_each_locked_one_is_charged_with_what_it_held_up_itself() -> None:
    """Of two kinds the one that took less of a worker's time is the next to go alone."""
    pool = pool_with(1)
    for name in ("slow", "brief"):
        pool.costs.observe(name, 1, 0.0001)
    pool.submit([(*fresh(n)[:7], name, None) for n, name in enumerate(("slow", "brief"))])
    [both] = sent(pool.plan(1.0))
    assert [offset for _, offset in both] == [0, 1]
    pool.report(0, report(0, returned=[0, 1], alone=[0, 1], held_up=[16.0, 0.5]))
    assert sent(pool.plan(1.1))[0] == [(False, 1)]


def test_a_stop_calls_back_claimed_rows_and_no_messages() -> None:
    pool = pool_with(2)
    pool.submit([fresh(1), fresh(2)])
    pool.plan(0.0)
    pool.report(0, report(0))
    pool.claimed(1, [(due("a"), None)], 0.1)
    [begun] = [a for a in pool.plan(0.2) if isinstance(a, Send) and isinstance(a.frame, RunChunk)]
    assert begun.worker == 0
    assert pool.queue.stop_claims() == [Send(0, Recall())]
    pool.report(0, report(begun.frame.number, returned=[0]))
    assert [claim_of(record)[0] for record in pool.take_excess(0.3)] == ["a"]
    assert not pool.may_exceed(0.4)
