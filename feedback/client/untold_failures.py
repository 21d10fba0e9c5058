"""Deliveries that failed, until somebody is told of them."""

from __future__ import annotations

import threading
from typing import Final

from feedback.client.pending import Submission
from feedback.errors import DeliveryFailed

_REMEMBERED: Final = 1_000


class UntoldFailures:
    """Of one client: which requests, and why; of more than so many the number. In any thread.

    A request counts once, whichever of its copies fail, and no more once one of them has arrived.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        """`remembered`: so many ids and causes are kept."""
        self._remembered = remembered
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._causes: dict[str, str] = {}  # id: cause
        self._more = 0  # those beyond, which bear the number of the round
        self._round = 1  # the next begins when all was told

    def add(self, submission: Submission, cause: str) -> None:
        """The broker did not confirm this one."""
        with self._lock:
            submission.failure = cause
            self._forget(submission)
            if submission.told:
                return  # of an earlier copy
            if len(self._causes) < self._remembered:
                self._causes[submission.id] = cause
            else:
                submission.first.beyond = self._round
                self._more += 1

    def arrived(self, submission: Submission) -> None:
        """It has, or another copy has."""
        with self._lock:
            submission.failure = None
            self._forget(submission)

    def tell(self, submission: Submission) -> DeliveryFailed | None:
        """What is to be told to whoever waits for this one; to all others it is told thereby."""
        with self._lock:
            if (cause := submission.failure) is None:
                return None
            self._told(submission)
        return DeliveryFailed({submission.id: cause})

    def sent_again(self, submission: Submission, failure: str | None) -> None:
        """Another copy is on its way after this failure: what becomes of that one counts."""
        if failure is None:
            return
        with self._lock:
            if submission.failure is failure:
                self._forget(submission)
                submission.failure, submission.told = None, False

    def refused(self, submission: Submission) -> None:
        """Who sends it is told so; that is all, whatever becomes of its copies."""
        with self._lock:
            self._told(submission)

    def tell_all(self) -> DeliveryFailed | None:
        """What is to be told of all, once."""
        with self._lock:
            failed = self._all()
            self._causes, self._more = {}, 0
            self._round += 1
        return failed

    def all(self) -> DeliveryFailed | None:
        """What tell_all() would."""
        with self._lock:
            return self._all()

    def _all(self) -> DeliveryFailed | None:
        return DeliveryFailed(self._causes, self._more) if self._causes or self._more else None

    def _told(self, submission: Submission) -> None:
        self._forget(submission)
        submission.told = True

    def _forget(self, submission: Submission) -> None:
        self._causes.pop(submission.id, None)
        if submission.first.beyond == self._round:
            submission.first.beyond = 0
            self._more -= 1
