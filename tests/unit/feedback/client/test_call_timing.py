"""When a call sends again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.client.call import Call, ResendTimer
from feedback.client.pending import StatusBefore, Submission
from feedback.contract.states import State
from feedback.status.status import Status

AT = datetime(2030, 5, 1, tzinfo=UTC)


def test_a_call_without_news_sends_again_after_its_pause() -> None:
    timer = ResendTimer(100.0, 20.0)
    assert timer.due == 120.0
    timer.sent(120.0)
    assert timer.due == 140.0


def test_after_refusals_the_gaps_double_from_one_second_to_thirty() -> None:
    timer, now, gaps = ResendTimer(0.0, 60.0), 0.0, []
    for _ in range(7):
        timer.refused(now + 0.01)
        gaps.append(timer.due - now)
        now = timer.due
        timer.sent(now)
    assert gaps == pytest.approx([1, 2, 4, 8, 16, 30, 30])


def test_a_refusal_that_comes_late_is_sent_again_at_once() -> None:
    timer = ResendTimer(0.0, 60.0)
    timer.refused(10.0)
    assert timer.due == 10.0


def test_no_gap_is_longer_than_the_pause_asked_for() -> None:
    timer = ResendTimer(0.0, 0.2)
    timer.refused(0.01)
    assert timer.due == pytest.approx(0.2)


def test_news_start_the_pause_anew() -> None:
    timer = ResendTimer(0.0, 10.0)
    timer.heard(5.0)
    assert timer.due == 15.0
    timer.heard(6.0, quiet_for=100.0)
    assert timer.due == 116.0
    timer.heard(7.0, quiet_for=-50.0)
    assert timer.due == 116.0


@given(
    st.floats(0.01, 100),
    st.lists(st.tuples(st.sampled_from(["sent", "heard", "refused"]), st.floats(0, 50))),
)
def test_resends_keep_their_distance(after: float, events: list[tuple[str, float]]) -> None:
    now, gap = 0.0, 1.0
    timer = ResendTimer(now, after)
    last = now
    for event, pause in events:
        now += pause
        if event == "sent":
            now = max(now, timer.due)
            assert now - last >= min(after, gap) - 1e-6
            last, gap = now, min(gap * 2, 30.0)
            timer.sent(now)
        elif event == "heard":
            timer.heard(now)
        else:
            timer.refused(now)


def status(state: State, run: int = 1, **fields: Any) -> Status:
    return Status("a", "t", state, fields.pop("code", "ok"), 1, run, AT, **fields)


def test_accepted_is_no_news_and_each_start_of_a_run_is() -> None:
    call = Call(Submission("a", "t", None), ResendTimer(0.0, 10.0))
    assert call.answer(status(State.ACCEPTED), 5.0) is None
    assert call.due == 10.0
    running = status(State.RUNNING)
    for now in (6.0, 7.0):
        assert call.answer(running, now) is None
        assert call.due == 16.0, "the same status is news once"
    call.answer(status(State.RUNNING, 2), 8.0)
    assert call.due == 18.0
    done = status(State.DONE, 2)
    assert call.answer(done, 9.0) is done


@pytest.mark.parametrize("code", ["shutdown", "database_unavailable"])
def test_a_refusal_is_heard_once_and_answered_a_second_later(code: str) -> None:
    call = Call(Submission("a", "t", None), ResendTimer(0.0, 60.0))
    refused = status(State.FAILED, code=code)
    assert call.answer(refused, 0.2) is None
    assert call.due == 1.0
    call.sent(1.0)
    assert call.answer(refused, 1.1) is None
    assert call.due == 61.0, "it is no answer to the second send"
    again = status(State.FAILED, 2, code=code)
    assert call.answer(again, 2.0) is None
    assert call.due == 3.0


@pytest.mark.parametrize("code", ["shutdown", "database_unavailable"])
def test_after_a_refusal_what_stood_before_the_call_is_no_answer_yet(code: str) -> None:
    """It comes back where Redis starts from its last snapshot."""
    before = status(State.FAILED, 3, code="handler_error")
    submission = Submission("a", "t", None, before=StatusBefore.of(before))
    call = Call(submission, ResendTimer(0.0, 60.0))
    refused = replace(status(State.FAILED, 4, code=code), journaled=False)
    since = AT + timedelta(seconds=1)
    for _ in range(2):
        assert call.answer(replace(refused, at=since), 0.2) is None
        assert call.answer(before, 0.3) is None
    assert submission.answer(before) is None, "nor to a wait for it"
    assert submission.answer(replace(refused, at=since)) is None
    own = status(State.FAILED, 4, code="handler_error")
    assert call.answer(own, 1.5) is own
