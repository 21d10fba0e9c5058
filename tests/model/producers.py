"""Producers of simulated requests: each calls, by the client's own logic, until it has an answer.

When it sends again (`Call`, `ResendTimer`) and what is an answer to what it has sent (`Submission`)
is the product's own code; a producer that is told that its request failed submits it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from unittest.mock import patch

from feedback.client import call as call_module
from feedback.client import pending
from feedback.client.call import Call, ResendTimer
from feedback.client.pending import StatusBefore, Submission, accepted
from feedback.contract.states import FINAL, State
from feedback.contract.times import moment
from feedback.status.status import Status, StatusWrite
from tests.model.pool_rules import Violation
from tests.model.sim_journal import Journal
from tests.model.sim_redis import Redis

MOST = 4
"""Times that one submits a request that fails."""
PATIENCE = (30.0, 60.0, 120.0)
"""Seconds without news before one sends again."""


class Clock:
    """In place of `datetime`, for who asks it for the time alone."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def now(self, _zone: tzinfo | None = None) -> datetime:
        return moment(self._seconds())


@dataclass(slots=True)
class Calling:
    """One call on its way to an answer."""

    submission: Submission
    call: Call
    patience: float
    raw: bytes | None = None
    status: Status | None = None
    submitted: int = 1


class Producers:
    """All of them."""

    def __init__(
        self,
        redis: Redis,
        journal: Journal,
        clock: Callable[[], float],
        send: Callable[[str], None],
    ) -> None:
        self._redis = redis
        self._journal = journal
        self._clock = clock
        self._send = send
        self.calls: dict[str, Calling] = {}
        """Those that have no answer yet."""
        self.answers: dict[str, Status] = {}

    @contextmanager
    def on_time(self) -> Iterator[None]:
        """The client's code sees the simulated time."""
        clock = Clock(self._clock)
        with patch.object(call_module, "datetime", clock), patch.object(pending, "datetime", clock):
            yield

    def submit(self, name: str, kind: str, patience: float) -> None:
        """A request is sent for the first time."""
        submission = Submission(name, kind, None)
        timer = ResendTimer(self._clock(), patience)
        self.calls[name] = Calling(submission, Call(submission, timer), patience)
        self._deliver(submission)

    def _deliver(self, submission: Submission) -> None:
        self._send(submission.id)
        submission.delivered = True
        self._redis.write(StatusWrite.of(accepted(submission)))

    def due(self) -> list[float]:
        """When each sends again."""
        return [one.call.due for one in self.calls.values()]

    def look(self) -> int:
        """Each reads its status, and does what is time; how many send again."""
        return sum([self._look(name, one) for name, one in list(self.calls.items())])

    def _look(self, name: str, one: Calling) -> bool:
        now = self._clock()
        raw = None if self._redis.away else self._redis.read(name)
        if raw is not None and raw != one.raw:
            one.raw, one.status = raw, Status.decode(raw)
        elif now < one.call.due:
            return False  # no news
        answer = one.call.answer(one.status, now)
        if answer is not None:
            self._answered(name, one, answer)
        elif now >= one.call.due:
            self._send(name)
            one.call.sent(now)
            return True
        return False

    def _answered(self, name: str, one: Calling, answer: Status) -> None:
        self.check(name, answer)
        if answer.state is State.FAILED and one.submitted < MOST:
            again = Submission(name, answer.type, None)
            if self._redis.away:
                again.unread_before()
            else:
                standing = self._redis.read(name)
                found = None if standing is None else Status.decode(standing)
                again.before = StatusBefore.of(found)
            one.submission, one.submitted = again, one.submitted + 1
            one.call = Call(again, ResendTimer(self._clock(), one.patience))
            self._deliver(again)
            return
        self.answers[name] = answer
        del self.calls[name]

    def check(self, name: str, answer: Status) -> None:
        """An answer was true once; one for good is true."""
        row = self._journal.rows.get(name)
        if row is None or (name, answer.state, answer.run) not in self._journal.said:
            raise Violation(f"{name} is answered {answer.state}, and the journal says {row}")
        if answer.state in FINAL and answer.state != row.state:
            raise Violation(f"{name} is answered {answer.state}, and the journal says {row.state}")
