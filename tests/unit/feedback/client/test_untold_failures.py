"""What failed is told once and whole, however much of it is only counted."""

from __future__ import annotations

import random

import pytest

from feedback.client.message import draft
from feedback.client.pending import Submission, Submissions
from feedback.client.send_clock import SendClock
from feedback.client.untold_failures import UntoldFailures
from feedback.errors import DeliveryFailed


def submission(number: int) -> Submission:
    return Submission(f"r-{number}", "t", None)


def told(failed: DeliveryFailed | None) -> tuple[list[str], int]:
    return ([], 0) if failed is None else (sorted(failed.failures), failed.more)


@pytest.fixture
def failures() -> UntoldFailures:
    return UntoldFailures(2)


@pytest.fixture
def failed(failures: UntoldFailures) -> list[Submission]:
    """Two that are remembered, and two that are not."""
    all_ = [submission(number) for number in range(4)]
    for one in all_:
        failures.add(one, "timed out")
    return all_


def test_those_beyond_are_told_when_the_others_have_been(
    failures: UntoldFailures, failed: list[Submission]
) -> None:
    for one in failed[:2]:
        failures.tell(one)
    with pytest.raises(DeliveryFailed, match="2 requests were not confirmed") as caught:
        raise_(failures.tell_all())
    assert (caught.value.failures, caught.value.more) == ({}, 2)
    assert caught.value.oversize is None
    assert failures.tell_all() is None


def raise_(error: DeliveryFailed | None) -> None:
    assert error is not None
    raise error


def test_copies_of_one_beyond_count_once(
    failures: UntoldFailures, failed: list[Submission]
) -> None:
    failures.add(failed[2], "timed out again")
    assert told(failures.all()) == (["r-0", "r-1"], 2)
    failures.tell(failed[0])
    failures.add(failed[2], "and again")
    assert told(failures.all()) == (["r-1", "r-2"], 1)


def test_one_beyond_that_arrives_after_all_is_not_told(
    failures: UntoldFailures, failed: list[Submission]
) -> None:
    failures.arrived(failed[3])
    assert told(failures.all()) == (["r-0", "r-1"], 1)
    assert failures.tell(failed[3]) is None


def test_who_waits_for_one_that_was_told_of_takes_none_of_what_failed_since(
    failures: UntoldFailures, failed: list[Submission]
) -> None:
    failures.tell_all()
    for number in range(4, 8):
        failures.add(submission(number), "timed out")
    assert told(failures.tell(failed[2])) == (["r-2"], 0)
    assert told(failures.tell_all()) == (["r-4", "r-5"], 2)


def test_a_request_that_is_submitted_twice_counts_once_beyond(failures: UntoldFailures) -> None:
    remembered, clock = Submissions(), SendClock()

    def submitted() -> Submission:
        one = draft(
            "t", 1, topic="t", reply_to=None, clock=clock, earlier=remembered.get, request_id="a"
        )[1]
        remembered.add(one)
        return one

    for number in range(2):
        failures.add(submission(number), "timed out")
    first, second, third = submitted(), submitted(), submitted()
    for one in (first, second, third):
        failures.add(one, "timed out")
    assert told(failures.all()) == (["r-0", "r-1"], 1)
    failures.arrived(third)
    assert told(failures.all()) == (["r-0", "r-1"], 0)


def test_whatever_becomes_of_them_each_is_told_once() -> None:
    rng = random.Random(1)
    for _ in range(200):
        failures, all_ = UntoldFailures(3), [submission(number) for number in range(8)]
        open_: set[str] = set()
        for _ in range(60):
            one = rng.choice(all_)
            match rng.randrange(6):
                case 0:
                    failures.arrived(one)
                    open_.discard(one.id)
                case 1:
                    failures.tell(one)
                    open_.discard(one.id)
                case 2 if rng.random() < 0.3:
                    failures.tell_all()
                    open_.clear()
                case _:
                    failures.add(one, "timed out")
                    if not one.told:
                        open_.add(one.id)
            ids, more = told(failures.all())
            assert len(ids) + more == len(open_)
            assert set(ids) <= open_
