"""What answers a submission, and what does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from feedback.client.pending import StatusBefore, Submission, Submissions
from feedback.contract.states import State
from feedback.errors import Conflict
from feedback.status.status import Status

AT = datetime(2030, 5, 1, tzinfo=UTC)


def status(state: State, run: int = 1, **fields: Any) -> Status:
    return Status("a", "t", state, fields.pop("code", "ok"), 1, run, fields.pop("at", AT), **fields)


def submission(**fields: Any) -> Submission:
    return Submission("a", "t", **{"fingerprint": "ff", **fields})


@pytest.mark.parametrize("state", State)
def test_settled_states_answer(state: State) -> None:
    found = status(state, fingerprint="ff")
    assert submission().answer(found) is (found if found.settled else None)


def test_nothing_answers_nothing() -> None:
    assert submission().answer(None) is None


def test_another_fingerprint_is_a_conflict_as_soon_as_a_consumer_has_spoken() -> None:
    for state in State:
        found = status(state, fingerprint="ee")
        if state is State.ACCEPTED:
            assert submission().answer(found) is None
            continue
        with pytest.raises(Conflict) as caught:
            submission().answer(found)
        assert caught.value.status is found


@pytest.mark.parametrize("theirs", [None, "ff"])
def test_another_type_is_a_conflict_also_where_no_payloads_can_be_compared(
    theirs: str | None,
) -> None:
    found = replace(status(State.DONE, fingerprint=theirs), type="other")
    with pytest.raises(Conflict, match="other"):
        submission().answer(found)
    own = replace(status(State.ACCEPTED), type="other")
    assert submission().answer(own) is None, "a producer's own, which no consumer has seen"


def test_without_a_type_on_either_side_none_are_compared() -> None:
    found = status(State.DONE)
    assert Submission("a", "", fingerprint=None).answer(found) is found


def test_without_a_fingerprint_on_either_side_nothing_is_compared() -> None:
    assert submission().answer(status(State.DONE)) is not None
    assert submission(fingerprint=None).answer(status(State.DONE, fingerprint="ee")) is not None


def test_a_failure_from_before_the_send_is_no_answer() -> None:
    before = status(State.FAILED, 3)
    mine = submission(before=StatusBefore.of(before))
    assert mine.answer(before) is None
    assert mine.answer(status(State.FAILED, 2)) is None
    assert mine.answer(status(State.FAILED, 4)) is not None
    # Other states stand, whenever they came.
    assert mine.answer(status(State.IN_DOUBT, 1)) is not None
    assert mine.answer(status(State.DONE, 1)) is not None


@pytest.mark.parametrize("state", [State.FAILED, State.IN_DOUBT])
def test_where_nobody_could_look_what_is_older_than_the_send_is_no_answer(state: State) -> None:
    mine = submission()
    mine.unread_before()
    assert mine.unread is not None
    before = status(state, 3, at=mine.unread - timedelta(seconds=1))
    assert mine.answer(before) is None
    assert mine.answer(before) is None
    # Also by a worker whose clock is behind.
    assert mine.answer(status(state, 4, at=mine.unread - timedelta(milliseconds=500))) is not None


def test_where_nobody_could_look_other_states_and_what_came_later_answer() -> None:
    mine = submission()
    mine.unread_before()
    assert mine.unread is not None
    assert mine.answer(status(State.DONE, at=mine.unread - timedelta(seconds=1))) is not None
    later = mine.unread + timedelta(seconds=1)
    assert mine.answer(status(State.FAILED, at=later)) is not None
    assert mine.answer(status(State.IN_DOUBT, at=later)) is not None


@pytest.mark.parametrize("kind", ["", "t", "other"])
def test_what_is_said_of_a_message_that_could_not_be_read_is_no_answer(kind: str) -> None:
    """What is sent here can be read, so it was somebody else's, under the same id."""
    found = replace(status(State.FAILED, code="malformed"), type=kind, journaled=False)
    assert submission().answer(found) is None
    assert Submission("a", "", fingerprint=None).answer(found) is found, "whose it is nobody knows"
    own = replace(status(State.REJECTED, code="malformed"), type="t")
    assert submission().answer(own) is own, "a handler's own code"


@pytest.mark.parametrize("code", ["database_unavailable", "handler_error"])
def test_after_failures_that_the_journal_never_saw_a_lower_run_answers(code: str) -> None:
    before = replace(status(State.FAILED, 5, code=code), journaled=code != "handler_error")
    mine = submission(before=StatusBefore.of(before))
    assert mine.answer(before) is None
    other = status(State.FAILED, 1, code="handler_error", at=AT + timedelta(seconds=1))
    assert mine.answer(other) is not None
    later = status(State.FAILED, 5, code=code, at=AT + timedelta(seconds=1))
    assert mine.answer(later) is not None


def test_a_lower_run_answers_after_such_a_failure_whatever_its_clock() -> None:
    before = replace(status(State.FAILED, 5, code="shutdown"), journaled=False)
    mine = submission(before=StatusBefore.of(before))
    own = status(State.FAILED, 1, code="handler_error", at=AT - timedelta(seconds=3))
    assert mine.answer(own) is own


def test_only_the_latest_submissions_are_remembered() -> None:
    known = Submissions(limit=2)
    for name in "aba":
        known.add(Submission(name, "t", None))
    latest = Submission("c", "t", None)
    known.add(latest)
    assert known.get("b") is None
    assert known.get("a") is not None
    assert known.get("c") is latest
