"""How many due rows are wanted, and what is known of those in hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from feedback.contract.record import NOWHERE, Record, claim_of, is_due
from processing.ipc.frames import RenewClaims, WantRows
from processing.pool.actions import Tell
from processing.pool.demand import (
    FIRST,
    HOLD,
    MOST_CROWDS,
    PATIENCE,
    REPLACE_AFTER,
    STUCK_AFTER,
    Demand,
)
from processing.pool.lanes import Lanes
from processing.pool.leases import RENEW_EVERY, Leases
from processing.pool.worker_time import Costs
from processing.pool.workers import Workers
from processing.settings import PoolSettings

MIB = 2**20


def due(name: str, order: int = 1, size: int = 2, kind: str = "quick") -> Record:
    headers: Any = [("ce_id", name.encode()), ("ce_type", kind.encode())]
    return ("topic", NOWHERE, NOWHERE, 0, None, b"x" * size, headers, kind, order)


def dues(n: int, order: int = 1, size: int = 2, kind: str = "quick") -> list[Record]:
    return [due(f"{order}-{i}", order, size, kind) for i in range(n)]


def ask(wants: Demand, now: float = 0.0, running: int = 0, **limits: Any) -> int | None:
    """How many rows are asked for now."""
    frame = wants.next(running, limits.get("limits", {}), limits.get("paused", ()), now)
    return None if frame is None else frame.most


def wanted(wants: Demand, now: float, paused: Any = ()) -> tuple[int, int, list[str]]:
    """The order, the number of rows and the types that are not wanted."""
    frame = wants.next(0, {}, paused, now)
    assert frame is not None
    return frame.order, frame.most, frame.paused


def test_a_due_record_is_told_from_one_of_a_partition() -> None:
    assert is_due(due("x"))
    assert not is_due(("topic", 0, 1, 0, None, b"", [], None, None))
    assert claim_of(due("ä", 7)) == ("ä", 7)


def test_no_rows_are_wanted_where_none_may_be() -> None:
    assert ask(Demand(0, MIB, 4)) is None


def test_one_want_is_open_until_its_rows_come() -> None:
    wants = Demand(1000, MIB, 4)
    assert ask(wants) == FIRST
    assert ask(wants, 5.0) is None
    wants.came(1, dues(10), 5.0)
    assert ask(wants, 5.1) == FIRST - 10


def test_exactly_one_refill_below_half_of_the_mark() -> None:
    wants = Demand(100, MIB, 4)
    ask(wants)
    records = dues(100)
    wants.came(1, records, 0.0)
    wants.went(records[:50])
    assert ask(wants, 0.9) is None
    wants.went(records[50:51])
    assert ask(wants, 0.9) == 51
    wants.went(records[51:])
    assert ask(wants, 0.9) is None


def test_limited_types_that_may_have_no_more_keep_no_other_waiting_however_few_they_have() -> None:
    wants = Demand(1000, MIB, 4)
    wants.none_starts()
    ask(wants)
    slow = [*dues(3, kind="a"), *(due(f"b{n}", kind="b") for n in range(3))]
    wants.came(1, slow, 0.0)
    full = {"a": 0, "b": 0}
    frame = wants.next(2, full, (), STUCK_AFTER)
    assert frame is not None
    assert (frame.most, frame.paused) == (4, ["a", "b"])


def test_what_waits_in_numbers_and_does_not_go_keeps_no_other_type_waiting() -> None:
    wants = Demand(FIRST, MIB, 2)
    ask(wants)
    slow = dues(FIRST, kind="slow")
    wants.came(1, slow, 0.0)
    wants.went(slow[:1])
    assert ask(wants, STUCK_AFTER - 0.1) is None
    # A few at a time, of all other types, though as many wait as may.
    assert wanted(wants, 1.0, {"paused"}) == (2, 2, ["paused", "slow"])
    assert ask(wants, 1.9, paused={"paused"}) is None
    quick = dues(1, 2)
    wants.came(2, quick, 10.0)
    wants.went(quick)
    assert ask(wants, 10.9) is None
    quick = dues(2, 2)
    wants.came(2, quick, 11.0)
    assert wanted(wants, 12.0) == (3, 2, ["quick", "slow"])
    # What goes after all has its like follow at once.
    wants.went([*slow[1:], quick[0]])
    assert wanted(wants, 12.2) == (4, 15, [])


def test_eight_types_that_wait_in_numbers_hold_up_the_others_only_while_all_work() -> None:
    wants = Demand(FIRST, MIB, 2)
    ask(wants)
    for n in range(MOST_CROWDS):
        wants.came(1, dues(FIRST // MOST_CROWDS, n, kind=str(n)), 0.0)
    assert ask(wants, 1.0) is None
    frame = wants.next(0, {}, (), 2.0, idle=True)
    assert frame is not None
    assert (frame.most, len(frame.paused)) == (2, MOST_CROWDS)


def test_what_would_wait_for_long_is_given_back() -> None:
    """The mark was made for quick ones; then slow ones come."""
    wants = Demand(1000, MIB, 2)
    ask(wants)
    slow, others = dues(900, kind="slow"), dues(3, 2, kind="other")
    wants.came(1, [*slow, *others], 0.0)
    wants.went(slow[:2])
    assert wants.hoards(2, PATIENCE - 1) is None
    # Four are what two workers have before them, of each of two types half of that.
    assert wants.hoards(2, PATIENCE) == 2
    wants.went([*slow[4:], *others[2:]], done=False)
    assert wants.hoards(2, 2 * PATIENCE) is None
    frame = wants.next(2, {}, (), 2 * PATIENCE)
    assert frame is not None
    assert frame.paused == ["other", "slow"], "given back, and not wanted again"
    # Quick ones stay, however many wait.
    quick = Demand(1000, MIB, 2)
    quick.came(1, slow, 0.0)
    quick.went(slow[:400])
    assert quick.hoards(2, PATIENCE) is None


def test_rows_that_run_do_not_wait_but_count_in_all() -> None:
    wants = Demand(100, MIB, 4)
    ask(wants)
    wants.came(1, dues(80), 0.0)
    assert ask(wants, 1.0, running=80) == 20


def test_the_mark_follows_what_is_done_in_two_seconds() -> None:
    wants = Demand(5000, 64 * MIB, 2)
    now, order = 0.0, 0
    wanted = []
    for _ in range(8):
        most = ask(wants, now)
        assert most is not None
        wanted.append(most)
        order += 1
        records = dues(most, order)
        wants.came(order, records, now)
        now += most / 1000  # a thousand a second
        wants.went(records)
    assert wanted[:3] == [100, 400, 1600]
    assert wanted[-1] == 1000 * HOLD
    for _ in range(8):
        most = ask(wants, now) or 0
        order += 1
        records = dues(most, order)
        wants.came(order, records, now)
        now += most  # one a second
        wants.went(records)
    assert ask(wants, now) == 4


def test_the_mark_grows_where_all_is_done_before_the_next_rows_come() -> None:
    """Then nothing is done whenever it is asked, as that is when rows have just come."""
    wants = Demand(5000, 64 * MIB, 2)
    wanted = [ask(wants)]
    for order in range(1, 5):
        came = order * 0.03
        records = dues(wanted[-1] or 0, order)
        wants.came(order, records, came)
        wanted.append(ask(wants, came, running=len(records)))
        wants.went(records)
    assert wanted == [100, 100, 400, 1600, 3400], "5,000 may be in hand"
    # After a while without any that are due it is what it was.
    wants.came(5, dues(1, 5), 600.0)
    assert ask(wants, 600.0, running=1) == 4999


def test_ends_that_come_in_a_heap_are_not_much_work() -> None:
    wants = Demand(1000, MIB, 2)
    ask(wants)
    slow = dues(FIRST)
    wants.came(1, slow, 0.0)
    wants.went(slow[:2])
    assert ask(wants, 0.001, running=98) is not None
    wants.came(2, dues(50, 2), 1.0)
    assert ask(wants, 1.0, running=148) == 4, "two in a second"


def test_large_rows_come_in_small_numbers() -> None:
    wants = Demand(5000, 10 * MIB, 2)
    ask(wants)
    wants.came(1, dues(5, size=MIB), 0.0)
    asked = wants.next(0, {}, (), 0.0)
    assert asked is not None
    assert asked.most == 4
    assert 4 * MIB < asked.most_bytes <= 5 * MIB, "they may be larger still"
    wants.came(2, dues(4, 2, size=MIB), 0.0)
    assert ask(wants, 0.0) is None
    one = Demand(100, 10, 2)
    ask(one)
    records = dues(1, size=MIB)
    one.came(1, records, 0.0)
    one.went(records)
    assert ask(one, 1.0) == 1


def test_changed_limits_replace_an_open_want_but_not_at_once() -> None:
    wants = Demand(100, MIB, 2)
    assert wants.next(0, {"a": 2}, {"b"}, 0.0) == WantRows(1, 100, {"a": 2}, ["b"], MIB)
    assert ask(wants, 9.0, limits={"a": 2}, paused={"b"}) is None
    assert ask(wants, REPLACE_AFTER / 2, limits={"a": 1}) is None
    assert wants.next(0, {}, set(), REPLACE_AFTER) == WantRows(2, 100, {}, [], MIB)
    wants.came(1, dues(3), 1.0)
    assert ask(wants, 1.0) is None  # the second is still open


def test_a_limited_type_that_went_and_may_come_again_is_asked_for_at_once() -> None:
    wants = Demand(100, MIB, 2)
    assert ask(wants, limits={"a": 2}) == 100
    rows = dues(2, kind="a")
    wants.came(1, rows, 0.0)
    assert ask(wants, 0.0, limits={"a": 0}) == 98
    wants.went(rows[:1])
    assert ask(wants, 0.1, limits={"a": 9}) is None, "there is one yet"
    wants.went(rows[1:])
    assert ask(wants, 0.2, limits={"a": 0}) is None
    assert ask(wants, 0.3, limits={"a": 9}) is not None
    assert ask(wants, 0.4, limits={"a": 10}) is None


def test_closing_and_a_new_maintenance() -> None:
    wants = Demand(100, MIB, 2)
    assert wants.close() is None
    ask(wants)
    assert wants.close() == WantRows(2, 0, {}, [])
    assert wants.close() is None
    assert ask(wants) == 100
    wants.forget()
    assert ask(wants) == 100


def test_leases_are_renewed_every_fifteen_seconds() -> None:
    wants, pool = Demand(100, MIB, 2), PoolSettings(workers=2)
    leases = Leases(pool, wants, Workers(pool), Lanes("none", Costs()))
    assert leases.due(0.0) == []
    wants.came(1, [due("a"), due("b")], 0.0)
    assert leases.due(RENEW_EVERY - 1) == []
    assert leases.due(RENEW_EVERY) == [Tell(RenewClaims([("a", 1), ("b", 1)]))]
    assert leases.due(RENEW_EVERY + 1) == []
    wants.went([due("a")])
    assert leases.due(2 * RENEW_EVERY) == [Tell(RenewClaims([("b", 1)]))]


class Hand(RuleBasedStateMachine):
    """Rows come and go; what is in hand is never above the bound."""

    def __init__(self) -> None:
        super().__init__()
        self.wants = Demand(50, MIB, 2)
        self.now = 0.0
        self.wanted: WantRows | None = None
        self.hand: list[Record] = []

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(running=st.integers(0, 50))
    def ask(self, running: int) -> None:
        frame = self.wants.next(min(running, len(self.hand)), {}, (), self.now)
        if frame is not None:
            # None is replaced but by one of other types, or one that is of other types.
            assert self.wanted is None or frame.paused or self.wanted.paused
            assert frame.most >= 1
            self.wanted = frame

    @rule(part=st.floats(0, 1))
    def come(self, part: float) -> None:
        if self.wanted is not None:
            order, most, _, paused, _ = self.wanted
            kind = next(name for name in map(str, range(9)) if name not in paused)
            records = dues(max(1, int(part * most)), order, kind=kind)
            self.wants.came(order, records, self.now)
            self.hand += records
            self.wanted = None

    @rule(n=st.integers(0, 30))
    def go(self, n: int) -> None:
        gone, self.hand = self.hand[:n], self.hand[n:]
        self.wants.went(gone)

    @invariant()
    def bounded(self) -> None:
        assert len(self.wants) == len(self.hand) <= 50 + 4
        assert sorted(self.wants.pairs) == sorted(map(claim_of, self.hand))

    @invariant()
    def never_dry(self) -> None:
        if not self.hand and self.wanted is None:
            self.ask(0)
            assert self.wanted is not None


Hand.TestCase.settings = settings(stateful_step_count=50)
# Many steps of pure code: several times slower where its branches are measured.
TestHand = pytest.mark.no_cover(Hand.TestCase)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_small_bound_still_takes_rows(most: int) -> None:
    wants = Demand(most, MIB, 4)
    assert ask(wants) == most
