"""How a client waits for an answer: what to do next, until there is one.

Decisions without I/O: generators of steps, which each kind of client takes in its own way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from feedback.client.call import Call, ResendTimer
from feedback.client.pending import Submission
from feedback.errors import DeliveryFailed, StoreUnavailable, WaitTimeout
from feedback.status.status import Status

Check = Callable[[Submission], None]
"""Raises where a wait for this request is over: it was not delivered, or the client is closed."""


class Act(Enum):
    """Steps that are no pause."""

    LOOK = "look"
    """Read the status that stands, as the time is over; it is sent in, None where none is known, or
    StoreUnavailable thrown in."""
    SEND = "send"
    """Send the request again, where there is room."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until something has happened, at most so many `seconds`."""

    seconds: float


Steps = Generator[Act | Pause, Status | None, Status]
"""Steps to take, of which LOOK alone is answered; the status that answers the request at the end.

Raises WaitTimeout, Conflict, ResultMismatch and what its check raises.
"""


class Watched(Protocol):
    """What is seen of a request from outside."""

    @property
    def status(self) -> Status | None:
        """The last one seen."""


def waiting(
    submission: Submission,
    watch: Watched,
    check: Check,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    where: str = "",
) -> Steps:
    """Waits for a request at most so many seconds; `where` its consumers are."""
    end = clock() + seconds
    while True:
        answer = submission.answer(watch.status)
        if answer is not None:
            return answer
        check(submission)
        left = end - clock()
        if left <= 0:
            break
        yield Pause(left)
    status, unread = yield from _last_look(watch)
    answer = submission.answer(status)
    if answer is None:
        raise _late(submission, seconds, status, where, unread)
    return answer


def calling(
    submission: Submission,
    watch: Watched,
    check: Check,
    times: CallTimes,
    clock: Callable[[], float] = time.monotonic,
    where: str = "",
) -> Steps:
    """Waits for a request that has just been sent, and has it sent again; `where` consumers are."""
    call = Call(submission, ResendTimer(clock(), times.resend_after))
    while (now := clock()) < times.end:
        answer = call.answer(watch.status, now)
        if answer is not None:
            return answer
        _check_call(submission, check, call, now)
        if now >= call.due:
            # Where the queue is full the first copy may still be on its way in it, and its answer
            # must not be missed: the next turn to send again comes.
            yield Act.SEND
            call.sent(clock())
        yield Pause(max(0.0, min(times.end, call.due) - clock()))
    status, unread = yield from _last_look(watch)
    answer = call.answer(status, now)
    if answer is None:
        check(submission)
        raise _late(submission, times.seconds, status, where, unread)
    return answer


def _check_call(submission: Submission, check: Check, call: Call, now: float) -> None:
    """Of brokers that said nothing in time others may be heard: then it is sent again."""
    try:
        check(submission)
    except DeliveryFailed as failed:
        if not failed.silent:
            raise
        call.unconfirmed(now)


def _late(
    submission: Submission, seconds: float, status: Status | None, where: str, unread: str
) -> WaitTimeout:
    return WaitTimeout(
        submission.id, seconds, status,
        where=where, unread=unread, unconfirmed=submission.unconfirmed,
    )  # fmt: skip


def _last_look(
    watch: Watched,
) -> Generator[Act | Pause, Status | None, tuple[Status | None, str]]:
    """The status that stands, which may be newer than the last sweep's; why, where unreadable."""
    try:
        return (yield Act.LOOK) or watch.status, ""
    except StoreUnavailable as error:
        return watch.status, str(error).rstrip(".")


@dataclass(frozen=True, slots=True)
class CallTimes:
    """How long a call goes on, and how often it sends."""

    seconds: float
    resend_after: float
    end: float  # on the caller's clock
