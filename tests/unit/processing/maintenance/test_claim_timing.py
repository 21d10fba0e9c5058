"""When maintenance claims: against every order of events that hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from feedback.journal.claims import ClaimRequest
from processing.maintenance.claim_timing import LONGEST, SHORTEST, ClaimTiming


def opened(now: float = 0.0, most: int = 10) -> ClaimTiming:
    refill = ClaimTiming()
    refill.wanted(ClaimRequest(1, most), now)
    return refill


def empty(refill: ClaimTiming, now: float, due_in: float | None = None) -> None:
    assert refill.tick(now) is not None
    assert refill.claimed(0, due_in, now)


def test_nothing_is_claimed_until_rows_are_wanted() -> None:
    refill = ClaimTiming()
    refill.woken(0.0)
    assert (refill.tick(0.0), refill.pause(0.0)) == (None, None)
    refill.wanted(ClaimRequest(1, 0), 0.0)
    assert (refill.tick(0.0), refill.pause(0.0)) == (None, None)
    refill.wanted(ClaimRequest(2, 5), 0.0)
    assert refill.tick(0.0) == ClaimRequest(2, 5)


def test_one_claim_at_a_time() -> None:
    refill = opened()
    assert refill.tick(0.0) is not None
    refill.woken(0.1)
    refill.wanted(ClaimRequest(2, 10), 0.2)
    assert (refill.tick(0.3), refill.pause(0.3)) == (None, None)
    assert refill.claimed(0, None, 0.4)


def test_rows_end_the_want_and_the_next_one_is_served_at_once() -> None:
    refill = opened()
    refill.tick(0.0)
    refill.claimed(3, None, 0.1)
    assert refill.tick(0.1) is None
    refill.wanted(ClaimRequest(2, 10), 0.2)
    assert refill.tick(0.2) == ClaimRequest(2, 10)


def test_a_want_that_came_during_a_claim_outlives_its_rows() -> None:
    refill = opened()
    refill.tick(0.0)
    refill.wanted(ClaimRequest(2, 10), 0.1)
    refill.claimed(3, None, 0.2)
    assert refill.tick(0.2) == ClaimRequest(2, 10)


def test_pauses_grow_to_a_second_while_nothing_is_due() -> None:
    refill, now, pauses = opened(), 0.0, []
    for _ in range(8):
        empty(refill, now)
        pause = refill.pause(now)
        assert pause is not None
        pauses.append(round(pause, 6))
        now += pause
    assert pauses == [SHORTEST, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_the_next_due_time_is_kept() -> None:
    refill, now = opened(), 0.0
    for _ in range(8):
        empty(refill, now)
        now += refill.pause(now) or 0.0
    empty(refill, now, due_in=0.3)
    assert refill.pause(now) == 0.3 or abs((refill.pause(now) or 0.0) - 0.3) < 1e-9


def test_empty_and_then_woken() -> None:
    refill = opened()
    for now in (0.0, 1.0, 2.0, 3.0, 4.0):
        empty(refill, now)
    refill.woken(4.01)
    assert refill.tick(4.01) is not None


def test_a_signal_that_names_a_time_is_served_then() -> None:
    refill = opened()
    for now in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0):
        empty(refill, now)
    refill.woken(5.0, seconds=0.2)
    assert refill.tick(5.1) is None
    assert refill.tick(5.2) is not None


def test_a_signal_during_a_claim_is_kept() -> None:
    refill = opened()
    for now in (0.0, 1.0, 2.0, 3.0, 4.0):
        empty(refill, now)
    refill.tick(5.0)
    refill.woken(5.01)
    refill.claimed(0, None, 5.02)
    assert refill.tick(5.02) is not None
    refill.claimed(0, None, 5.03)
    assert refill.tick(5.03) is None


def test_a_stop_during_a_claim_gives_its_rows_back() -> None:
    refill = opened()
    refill.tick(0.0)
    refill.stop()
    assert refill.claimed(3, None, 0.1) is False
    assert (refill.tick(9.0), refill.pause(9.0)) == (None, None)


def test_after_a_failure_it_waits_a_second_and_still_wants() -> None:
    refill = opened()
    refill.tick(0.0)
    refill.failed(0.1)
    assert refill.tick(0.5) is None
    assert refill.tick(1.1) is not None


def test_a_clock_that_jumps_back_stops_nothing() -> None:
    refill = opened(1000.0)
    empty(refill, 1000.0)
    assert refill.pause(5.0) == LONGEST
    assert refill.tick(5.0 + LONGEST) is not None


def test_odd_times_do_no_harm() -> None:
    refill = opened()
    empty(refill, 0.0, due_in=-5.0)
    assert refill.tick(0.0) is not None
    refill.claimed(0, 1e18, 0.0)
    refill.woken(0.0, seconds=-3.0)
    assert refill.tick(0.0) is not None


class Claiming(RuleBasedStateMachine):
    """Claim timing, rows that become due in a database, and a main process that wants some."""

    def __init__(self) -> None:
        super().__init__()
        self.refill = ClaimTiming()
        self.now = 100.0
        self.order = 0
        self.open = False
        self.claiming: ClaimRequest | None = None
        self.told: float | None = None
        """When a row is due that somebody told of, and that no claim has looked for."""

    @rule(most=st.integers(0, 5))
    def want(self, most: int) -> None:
        self.order += 1
        self.refill.wanted(ClaimRequest(self.order, most), self.now)
        self.open = most > 0 and not self.refill.stopped

    @rule(seconds=st.floats(0, 3))
    def wake(self, seconds: float) -> None:
        self.refill.woken(self.now, seconds)
        told = self.now + min(seconds, LONGEST)
        self.told = told if self.told is None else min(self.told, told)

    @rule(seconds=st.floats(0, 2))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def tick(self) -> None:
        want = self.refill.tick(self.now)
        if want is not None:
            assert self.open
            assert self.claiming is None
            self.claiming = want
            if self.told is not None and self.told <= self.now:
                self.told = None

    @precondition(lambda self: self.claiming is not None)
    @rule(rows=st.integers(0, 3), due_in=st.none() | st.floats(0, 5))
    def claimed(self, rows: int, due_in: float | None) -> None:
        assert self.claiming is not None
        kept = self.refill.claimed(rows, due_in, self.now)
        assert kept is not self.refill.stopped
        if rows and self.claiming.order == self.order:
            self.open = False
        self.claiming = None

    @precondition(lambda self: self.claiming is not None)
    @rule()
    def failed(self) -> None:
        self.refill.failed(self.now)
        self.claiming = None

    @rule()
    def stop(self) -> None:
        self.refill.stop()
        self.open = False

    @invariant()
    def a_want_is_served_within_a_second(self) -> None:
        pause = self.refill.pause(self.now)
        assert (pause is not None) == (self.open and self.claiming is None)
        assert pause is None or 0.0 <= pause <= LONGEST + 1e-9

    @invariant()
    def what_was_said_is_kept(self) -> None:
        pause = self.refill.pause(self.now)
        if pause is not None and self.told is not None:
            assert self.now + pause <= max(self.told, self.now) + 1e-9


Claiming.TestCase.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=60
)
# Many steps of pure code: several times slower where its branches are measured.
TestClaiming = pytest.mark.no_cover(Claiming.TestCase)


def test_no_storm_of_claims_while_nothing_is_due() -> None:
    refill, now, claims = opened(), 0.0, 0
    while now < 60.0:
        if refill.tick(now) is not None:
            claims += 1
            refill.claimed(0, None, now)
        now += 0.001
    assert 60 <= claims <= 70
