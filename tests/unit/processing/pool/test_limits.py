"""Limits of types in one instance, and what the pool makes of them."""

from __future__ import annotations

from typing import Any

from feedback.contract.record import OFFSET, Record
from processing.cluster.quota import InstanceQuota, TypeQuota
from processing.ipc.frames import LimitsFound, Report, Returned, RunChunk, Stop
from processing.pool.actions import Send, Spawn
from processing.pool.limits import TypeLimits
from processing.pool.pool import Pool
from processing.pool.pool_stats import stats_of
from processing.pool.worker_time import Costs
from processing.settings import PoolSettings

BACKEND = (4711, "2026-01-01 00:00:00+00")


def given(workers: int | None = None, *paused: str, **types: tuple[int | None, ...]) -> LimitsFound:
    shares = {kind: TypeQuota(*share) for kind, share in types.items()}
    return LimitsFound(1, **InstanceQuota(workers, shares, paused).plain())


def test_the_handlers_own_limit_holds_until_operators_set_another() -> None:
    caps = TypeLimits()
    assert caps.app({"pay": 4})
    assert not caps.app({"pay": 4})
    assert caps.most == {"pay": 4}
    assert caps.limits(given(pay=(9,)))
    assert caps.most == {"pay": 9}
    caps.limits(given(pay=(None, 8, 3, 5)))
    assert caps.most == {"pay": 3}
    caps.limits(given(pay=(2, 8, 3, 5)))
    assert caps.most == {"pay": 2}
    caps.limits(given())
    assert caps.most == {"pay": 4}


def test_a_change_of_workers_alone_changes_no_cap() -> None:
    caps = TypeLimits()
    assert not caps.limits(given(3))
    assert caps.workers == 3


def test_none_starts_here_of_what_is_paused_or_falls_to_others_but_what_is_soon_due_waits() -> None:
    caps = TypeLimits()
    caps.limits(given(None, "a", b=(None, 2, 0, 0), c=(None, 2, 0, 2)))
    assert caps.most == {"a": 0, "b": 0, "c": 0}
    assert caps.elsewhere == {"a", "b"}


def test_what_may_run_at_once_is_the_share_or_what_still_runs_and_only_of_what_is_shared() -> None:
    caps = TypeLimits()
    caps.limits(given(a=(None, 4, 2, 2), b=(5,)))
    assert caps.at_once({"a": 6, "b": 1}) == {"a": 6}
    assert caps.at_once({}) == {"a": 2}


def test_what_is_needed_is_what_is_there_as_far_as_it_could_run_here() -> None:
    caps, costs = TypeLimits(), Costs()
    costs.observe("quick", 1, 0.001)
    caps.app({"few": 3, "other": 3})
    assert caps.needs({"few": 9}, costs, 4) == {}, "nobody shares it"
    shared = dict.fromkeys(("quick", "slow", "few", "own", "gone"), (None, 8, 2, 2))
    caps.limits(given(None, "gone", **shared | {"own": (5, 8, 2, 2)}, other=(9,)))
    present = dict.fromkeys(shared, 99)
    assert caps.needs(present, costs, 4) == {"quick": 8, "slow": 4, "few": 3, "own": 4, "gone": 0}
    costs.observe("own", 1, 0.001)
    assert caps.needs({"own": 99, "few": 1}, costs, 4) == {
        "quick": 0, "slow": 0, "few": 1, "own": 5, "gone": 0,
    }  # fmt: skip


def test_what_may_run_is_spread_over_the_workers() -> None:
    caps = TypeLimits()
    caps.app({"a": 8, "b": 1})
    assert [caps.in_chunk("a", workers) for workers in (1, 3, 4, 99)] == [8, 3, 2, 1]
    assert caps.in_chunk("b", 4) == 1


# The pool


def record(offset: int, kind: str = "few", key: bytes | None = None) -> Record:
    return ("topic", 0, offset, 0, key, b"{}", [], kind, None)


def pool_with(workers: int, **settings: Any) -> Pool:
    pool = Pool(PoolSettings(workers=workers, instance="i", **settings))
    pool.costs.observe("quick", 1, 0.0001)
    pool.costs.observe("few", 1, 0.0001)
    start(pool, 0.0)
    return pool


def start(pool: Pool, now: float) -> None:
    for action in pool.plan(now):
        if isinstance(action, Spawn):
            pool.crew.connected(action.worker, BACKEND)
            pool.ready(action.worker)


def sent(actions: list[Any]) -> list[tuple[int, int, list[int]]]:
    """Worker, chunk and offsets."""
    return [
        (a.worker, a.frame.number, [r[OFFSET] for r in a.frame.records])
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RunChunk)
    ]


def done(pool: Pool, worker: int, chunk: int) -> None:
    pool.report(worker, Report(chunk, [], [], {}, {}, database_up=True))


def test_nothing_is_needed_while_no_worker_starts() -> None:
    """Others wait for what it is given, and it runs nothing."""
    pool = pool_with(2)
    pool.limit(given(few=(None, 4, 4, 4)))
    pool.submit([record(n) for n in range(20)])
    for worker, _, _ in sent(pool.plan(1.0)):
        assert stats_of(pool).needs == {"few": 4}
        pool.died(worker, "signal SIGKILL", None, 2.0)
    assert stats_of(pool).needs == {"few": 4}, "it may be that others start"
    for action in pool.plan(3.0):
        if isinstance(action, Spawn):
            pool.died(action.worker, "exit code 1", None, 4.0)
    assert stats_of(pool).needs == {"few": 0}
    assert stats_of(pool).at_once == {"few": 4}, "what it may have until it is told otherwise"
    pool.limit(given(few=(None, 4, 0, 1)))
    assert stats_of(pool).at_once == {"few": 0}, "its suspects are not kept a place"
    start(pool, 60.0)
    assert stats_of(pool).needs == {"few": 4}
    assert stats_of(pool).at_once == {"few": 1}, "one of them may go now, whatever the limit says"


def test_never_more_than_the_cap_is_in_flight_and_others_run_on() -> None:
    pool = pool_with(2)
    pool.limit_by_app({"few": 3})
    pool.submit([record(n) for n in range(20)])
    pool.submit([record(n, "quick") for n in range(100, 110)])
    in_flight: dict[int, tuple[int, list[int]]] = {}
    finished: list[int] = []
    for turn in range(100):
        for worker, chunk, offsets in sent(pool.plan(float(turn))):
            in_flight[chunk] = worker, offsets
        few = [o for _, offsets in in_flight.values() for o in offsets if o < 100]
        assert len(few) <= 3
        if not in_flight:
            break
        chunk = min(in_flight)
        worker, offsets = in_flight.pop(chunk)
        finished += offsets
        done(pool, worker, chunk)
    assert sorted(finished) == [*range(20), *range(100, 110)]
    assert pool.in_hand == 0


def test_what_is_paused_is_given_up_at_once_and_what_waits_beyond_ten_caps_too() -> None:
    pool = pool_with(1, max_in_hand=2000)
    pool.submit([record(0), record(1, "quick")])
    pool.limit(given(None, "few"))
    pool.submit([record(n) for n in range(2, 5)])
    ((worker, chunk, offsets),) = sent(pool.plan(1.0))
    assert offsets == [1]
    assert sorted(r[OFFSET] for r in pool.take_excess(0.0)) == [0, 2, 3, 4]
    done(pool, worker, chunk)
    assert pool.in_hand == 0

    pool.limit(given(few=(20,)))
    pool.submit([record(n) for n in range(300)])
    ((worker, chunk, offsets),) = sent(pool.plan(2.0))
    assert offsets == list(range(20))
    assert [r[OFFSET] for r in pool.take_excess(0.0)] == list(range(299, 219, -1))
    assert pool.take_excess(0.0) == []
    assert pool.in_hand == 220


def test_limited_types_together_fill_a_quarter_of_the_pool_at_most() -> None:
    pool = pool_with(1, max_in_hand=400)
    pool.costs.observe("rare", 1, 0.0001)
    pool.limit(given(few=(20,), rare=(2,)))
    pool.submit([record(n, kind) for n in range(200) for kind in ("few", "rare")])
    pool.plan(1.0)
    pool.take_excess(0.0)
    assert pool.lanes.waiting == {"few": 50, "rare": 50}


def test_what_was_set_aside_is_parked_though_its_type_is_resumed() -> None:
    """What came later of its key may have gone before it."""
    pool = pool_with(1)
    pool.limit(given(None, "few"))
    pool.submit([record(0)])
    pool.limit(given())
    assert sent(pool.plan(1.0)) == []
    assert [r[OFFSET] for r in pool.take_excess(0.0)] == [0]
    assert pool.in_hand == 0


def test_what_a_broken_connection_gave_back_is_given_up_where_its_type_is_paused() -> None:
    """It goes alone from then on, and what waits behind it of its key must not wait for ever."""
    pool = pool_with(1)
    pool.submit([record(0, key=b"k"), record(1, "quick", b"k"), record(2)])
    ((worker, chunk, offsets),) = sent(pool.plan(1.0))
    assert offsets == [0, 1, 2]
    pool.limit(given(None, "few"))
    pool.report(worker, Report(chunk, [0, 1, 2], [], {}, {}, database_up=False))
    pool.database(up=True)
    assert sorted(r[OFFSET] for r in pool.take_excess(0.0)) == [0, 2]
    ((worker, chunk, offsets),) = sent(pool.plan(2.0))
    assert offsets == [1]
    done(pool, worker, chunk)
    assert (pool.take_excess(0.0), pool.in_hand, len(pool.lanes)) == ([], 0, 0)


def test_workers_are_resized_and_the_configured_number_comes_back() -> None:
    pool = pool_with(3)
    assert pool.limit(given(1)) == [Send(1, Stop()), Send(2, Stop())]
    for number in (1, 2):
        pool.died(number, "exit code 0", None, 1.0)
    assert pool.limit(given(1)) == []
    assert pool.limit(given(2)) == []
    assert pool.plan(2.0) == [Spawn(3)]
    pool.limit(given())
    assert pool.plan(3.0) == [Spawn(4)]
    assert stats_of(pool).workers_wanted == 3


def test_records_of_a_worker_that_leaves_run_elsewhere() -> None:
    pool = pool_with(2)
    pool.submit([record(n, "quick") for n in range(4)])
    chunks = sent(pool.plan(1.0))
    assert pool.limit(given(1)) == [Send(1, Stop())]
    pool.returned(1, Returned(chunks[1][1], [1]))
    done(pool, *chunks[1][:2])
    pool.died(1, "exit code 0", None, 1.0)
    done(pool, *chunks[0][:2])
    assert [offsets for _, _, offsets in sent(pool.plan(2.0))] == [[chunks[1][2][1]]]


def test_a_suspect_counts_as_one_that_runs_as_it_may_go_whatever_the_limit_says() -> None:
    pool = pool_with(1)
    pool.limit(given(few=(None, 4, 2, 2)))
    pool.submit([record(n) for n in range(5)])
    ((worker, _, offsets),) = sent(pool.plan(1.0))
    assert (stats_of(pool).at_once, stats_of(pool).needs) == ({"few": 2}, {"few": 4})
    pool.limit(given(few=(None, 4, 0, 1))._replace(number=7))
    assert (stats_of(pool).at_once, stats_of(pool).limits_number) == ({"few": len(offsets)}, 7)
    pool.died(worker, "SIGKILL", None, 2.0)
    assert stats_of(pool).at_once == {"few": 1}
