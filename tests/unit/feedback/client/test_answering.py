"""The steps of a wait and of a call, taken by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from feedback import ClientClosed, Conflict, Status, WaitTimeout
from feedback.client.answering import Act, CallTimes, Pause, Steps, calling, waiting
from feedback.client.pending import Submission
from feedback.contract.states import State


class Seen:
    """What a wait sees, a clock, and whether the client is closed."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.now = 100.0
        self.closed = False

    def check(self, submission: Submission) -> None:
        if self.closed:
            raise ClientClosed

    def clock(self) -> float:
        return self.now


def a_status(state: str, run: int = 1, **fields: object) -> Status:
    return Status(
        id="a", type="t", state=State(state), code=str(fields.pop("code", "ok")), attempt=1,
        run=run, at=datetime.now(UTC), **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def a_submission(fingerprint: str | None = "aa") -> Submission:
    return Submission("a", "t", fingerprint)


def end_of(steps: Steps, status: Status | None = None) -> Status:
    with pytest.raises(StopIteration) as ended:
        steps.send(status)
    answer: Status = ended.value.value
    return answer


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_wait_pauses_for_what_is_left_and_ends_with_the_answer(seen: Seen) -> None:
    steps = waiting(a_submission(), seen, seen.check, 10.0, seen.clock)
    assert next(steps) == Pause(10.0)
    seen.now += 4
    seen.status = a_status("running")
    assert next(steps) == Pause(6.0)
    seen.status = a_status("done")
    assert end_of(steps) is seen.status


def test_what_is_there_already_takes_no_step(seen: Seen) -> None:
    seen.status, seen.closed = a_status("done"), True
    assert end_of(waiting(a_submission(), seen, seen.check, 10.0, seen.clock)) is seen.status


def test_at_the_end_of_its_time_a_wait_looks_once_more(seen: Seen) -> None:
    steps = waiting(a_submission(), seen, seen.check, 10.0, seen.clock)
    next(steps)
    seen.now += 10
    assert next(steps) is Act.LOOK
    assert end_of(steps, answer := a_status("rejected")) is answer


def test_a_time_out_has_the_last_status_looked_up_or_seen_before(seen: Seen) -> None:
    seen.status = a_status("running")
    for looked, last in ((None, seen.status), (later := a_status("waiting", 2), later)):
        steps = waiting(a_submission(), seen, seen.check, 0.0, seen.clock)
        assert next(steps) is Act.LOOK
        with pytest.raises(WaitTimeout) as caught:
            steps.send(looked)
        assert caught.value.status is last


def test_a_wait_raises_what_its_check_raises_and_conflicts(seen: Seen) -> None:
    steps = waiting(a_submission(), seen, seen.check, 10.0, seen.clock)
    next(steps)
    seen.closed = True
    with pytest.raises(ClientClosed):
        next(steps)
    seen.status = a_status("done", fingerprint="bb")
    with pytest.raises(Conflict):
        next(waiting(a_submission(), seen, seen.check, 10.0, seen.clock))


def test_a_call_has_its_request_sent_again_when_nothing_comes(seen: Seen) -> None:
    times = CallTimes(10.0, 3.0, seen.now + 10)
    steps = calling(a_submission(), seen, seen.check, times, seen.clock)
    assert next(steps) == Pause(3.0)
    seen.now += 3
    assert next(steps) is Act.SEND
    assert next(steps) == Pause(3.0)
    seen.now += 6.5
    assert next(steps) is Act.SEND
    assert next(steps) == Pause(0.5)
    seen.now += 0.5
    assert next(steps) is Act.LOOK
    with pytest.raises(WaitTimeout, match="10 s"):
        steps.send(None)


def test_a_call_takes_no_refusal_for_an_answer(seen: Seen) -> None:
    times = CallTimes(60.0, 20.0, seen.now + 60)
    steps = calling(a_submission(), seen, seen.check, times, seen.clock)
    next(steps)
    seen.status = a_status("failed", code="shutdown")
    assert next(steps) == Pause(1.0)
    seen.now += 1
    assert next(steps) is Act.SEND
    seen.status = a_status("done", 2)
    assert isinstance(next(steps), Pause)
    assert end_of(steps) is seen.status


def test_a_call_looks_once_more_at_the_end(seen: Seen) -> None:
    times = CallTimes(1.0, 3.0, seen.now + 1)
    steps = calling(a_submission(), seen, seen.check, times, seen.clock)
    assert next(steps) == Pause(1.0)
    seen.now += 1
    assert next(steps) is Act.LOOK
    assert end_of(steps, answer := a_status("done")) is answer
