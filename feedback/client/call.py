"""A call: what each status means for it, and when it sends its request again.

Decisions without I/O: events and a clock in.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from feedback.backoff import Backoff
from feedback.client.pending import StatusBefore, Submission
from feedback.contract.states import NOT_RUN, State
from feedback.status.status import Status

_IN_WORK: Final = frozenset({State.RUNNING, State.WAITING})

SHORTEST_GAP: Final = 1.0
LONGEST_GAP: Final = 30.0


class ResendTimer:
    """`due` is when to send again, on the caller's clock.

    Again after `resend_after` seconds without news, and soon after a failure that another try
    may not meet; but never sooner after the last send than a gap that doubles from 1 s to 30 s.
    """

    def __init__(self, now: float, resend_after: float) -> None:
        self._after = resend_after
        self._gaps = Backoff(SHORTEST_GAP, LONGEST_GAP)
        self._gap = self._gaps.next()
        self._sent = now
        self.due = now + resend_after

    def sent(self, now: float) -> None:
        """It was sent again."""
        self._gap = self._gaps.next()
        self._sent = now
        self.due = now + self._after

    def heard(self, now: float, quiet_for: float = 0.0) -> None:
        """Somebody works on it, or will in `quiet_for` seconds."""
        self.due = max(self.due, now + max(quiet_for, 0.0) + self._after)

    def refused(self, now: float) -> None:
        """A consumer could not run it (database away, or shutting down), or no broker took it."""
        self.due = max(now, self._sent + min(self._after, self._gap))


class Call:
    """One request on its way to an answer. Times are the caller's clock."""

    def __init__(self, submission: Submission, timer: ResendTimer) -> None:
        self._submission = submission
        self._timer = timer
        self._seen: Status | None = None

    @property
    def due(self) -> float:
        """When to send it again."""
        return self._timer.due

    def sent(self, now: float) -> None:
        """It was sent again."""
        self._timer.sent(now)

    def unconfirmed(self, now: float) -> None:
        """No broker has confirmed it in time."""
        self._timer.refused(now)

    def answer(self, status: Status | None, now: float) -> Status | None:
        """The status, where it answers the call. Raises as Submission.answer()."""
        answer = self._submission.answer(status)
        if answer is not None and not _refused(answer):
            return answer
        if answer is not None:
            # No answer to the next send; what stood before the first one is none either.
            self._submission.refused = StatusBefore.of(answer)
            self._timer.refused(now)
        elif status is not None and status is not self._seen and status.state in _IN_WORK:
            self._timer.heard(now, _quiet_for(status))
        self._seen = status
        return None


def _refused(status: Status) -> bool:
    """Whether a consumer could not run it: its database was away, or it was shutting down."""
    return status.state is State.FAILED and status.code in NOT_RUN


def _quiet_for(status: Status) -> float:
    """Seconds in which nothing is to be expected of it."""
    if status.retry_at is None:
        return 0.0
    return (status.retry_at - datetime.now(UTC)).total_seconds()
