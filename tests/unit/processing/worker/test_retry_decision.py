from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.states import HANDLER_ERROR, RETRY, TIMEOUT, State
from processing.handlers.outcomes import Outcome, Reject, Retry, outcome_of
from processing.handlers.retry_policy import RetryPolicy
from processing.worker.retry_decision import LONGEST_DELAY, decide

NOW = datetime(2030, 1, 1, tzinfo=UTC)
STEADY = RetryPolicy(attempts=3, base=2, factor=3, cap=100, jitter=0)


def step(error: BaseException, policy: RetryPolicy = STEADY, used: int = 0) -> tuple[Outcome, int]:
    return decide(outcome_of(error), policy, used, NOW, lambda: 0.5)


def test_it_waits_between_attempts_and_is_dead_after_the_last() -> None:
    error = ValueError("no")
    first, used = step(error)
    assert (first.state, first.code, used) == (State.WAITING, HANDLER_ERROR, 1)
    assert first.due == NOW + timedelta(seconds=2)
    second, used = step(error, used=used)
    assert (second.state, second.due, used) == (State.WAITING, NOW + timedelta(seconds=6), 2)
    third, used = step(error, used=used)
    assert (third.state, third.code, third.due, used) == (State.DEAD, HANDLER_ERROR, None, 3)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_without_retries_it_is_failed(error: BaseException) -> None:
    outcome, used = step(error, RetryPolicy())
    assert (outcome.state, used) == (State.FAILED, 1)


def test_a_retry_is_honoured_without_retries() -> None:
    outcome, used = step(Retry(after=5), RetryPolicy())
    assert (outcome.state, outcome.due, used) == (State.WAITING, NOW + timedelta(seconds=5), 1)
    assert step(Retry(), RetryPolicy())[0].state == State.WAITING
    assert step(Retry(after=5), RetryPolicy(), used=9)[0].state == State.DEAD


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_what_ends_a_process_is_a_failure_like_any_other(error: BaseException) -> None:
    assert step(error)[0].state == State.WAITING
    assert step(error, RetryPolicy(attempts=3, on=OSError))[0].state == State.DEAD
    assert step(error, RetryPolicy(attempts=3, on=SystemExit))[0].state == (
        State.WAITING if isinstance(error, SystemExit) else State.DEAD
    )


@pytest.mark.parametrize(
    "policy", [{"base": 1e12}, {"base": 1e300}, {"factor": 1e300, "cap": 1e300}]
)
def test_a_pause_beyond_the_calendar_is_as_long_as_anything_may_wait(
    policy: dict[str, float],
) -> None:
    endless = RetryPolicy(attempts=9, jitter=0, **policy)
    assert step(ValueError(), endless, used=2)[0].due == NOW + LONGEST_DELAY


def test_other_ends_are_no_failures() -> None:
    assert step(Reject("no_funds"))[0].state == State.REJECTED
    done = Outcome(State.DONE, "ok")
    assert decide(done, STEADY, 1, NOW, lambda: 0) == (done, 2)
    doubt = outcome_of(ValueError(), "external")
    assert decide(doubt, STEADY, 0, NOW, lambda: 0) == (doubt, 1)


def test_the_handler_says_when_it_runs_again() -> None:
    outcome, used = step(Retry(after=40, reason="busy"))
    assert (outcome.state, outcome.code, outcome.reason) == (State.WAITING, RETRY, "busy")
    assert (outcome.due, used) == (NOW + timedelta(seconds=40), 1)
    assert step(Retry(at=NOW + timedelta(days=2)))[0].due == NOW + timedelta(days=2)
    assert step(Retry(at=NOW - timedelta(days=2)))[0].due == NOW
    assert step(Retry(at=NOW + timedelta(days=9999)))[0].due == NOW + LONGEST_DELAY
    for seconds in (1e300, 10**400, Decimal("1e400")):
        assert step(Retry(after=seconds))[0].due == NOW + LONGEST_DELAY  # type: ignore[arg-type]
    assert step(Retry())[0].due == NOW + timedelta(seconds=2)
    assert step(Retry(after=1), used=2)[0].state == State.DEAD


def test_what_does_not_count_goes_on_for_ever() -> None:
    outcome, used = step(Retry(after=1, counts=False), RetryPolicy())
    assert (outcome.state, used) == (State.WAITING, 0)
    outcome, used = step(Retry(counts=False), used=2)
    assert (outcome.state, used) == (State.WAITING, 2)


def test_only_exceptions_that_are_worth_it_run_again() -> None:
    picky = RetryPolicy(attempts=3, on=(OSError,))
    assert step(TimeoutError(), picky)[0].state == State.WAITING
    assert step(ValueError(), picky)[0].state == State.DEAD
    timed_out = Outcome(State.FAILED, TIMEOUT)
    assert decide(timed_out, picky, 0, NOW, lambda: 0)[0].state == State.WAITING


@given(
    st.integers(1, 10_000),
    st.floats(0.001, 1e6),
    st.floats(1, 1e6),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_a_pause_lies_between_its_jitter_and_its_cap(
    used: int, base: float, factor: float, jitter: float, drawn: float
) -> None:
    policy = RetryPolicy(attempts=2, base=base, factor=factor, cap=base * 7, jitter=jitter)
    pause = policy.pause(used, lambda: drawn)
    assert base * (1 - jitter) * 0.999 <= pause <= policy.cap
