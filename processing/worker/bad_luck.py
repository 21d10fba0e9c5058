"""What keeps a request from its end and is none of its faults: how often it is tried, and then.

Other transactions hold what it needs, or the connection breaks each time.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import psycopg

from feedback.backoff import Backoff
from feedback.contract.states import RETRY, State
from feedback.journal.database_errors import is_lock_race
from processing.handlers.outcomes import Outcome, Retry, describe, outcome_of, safe_text
from processing.worker.transaction_ends import CommitRefused

REDO = 10
"""Tries of a chunk that loses a race, before it is halved, and of one request, before it waits."""
AGAIN_AFTER, AGAIN_AT_MOST = 2.0, 300.0
"""Seconds that a request waits whose locks others hold all the time: doubling from run to run."""
LONGEST_REDO = 20.0
"""Seconds after the first race of a chunk: then nothing that met a lock is tried a second time."""
ROW_WAIT, HANDLER_WAIT = 0.05, 0.5
"""Seconds for which a lock is waited for by what has waited the whole `database_lock_timeout` in
vain: who else of the chunk needs it is found in no time. The journal's own statements from then on;
handlers, whose rows may be busy ones, once it is late (LONGEST_REDO)."""
BETWEEN_TRIES = Backoff(0.01, 1.0, random.random)


class ConnectionLostEachTime(psycopg.OperationalError):
    """What a request fails with under which the connection broke again and again."""

    def __init__(self, times: int, error: psycopg.Error) -> None:
        self.reason = f"the database connection was lost {times} times in a row while it was tried"
        super().__init__(f"{self.reason}, though the database can be reached: {error}")
        self.__cause__ = error


def pause_after(tries: int) -> float:
    """Seconds to wait after so many tries that others were in the way of."""
    return BETWEEN_TRIES.after(tries)


def has_waited(error: BaseException) -> bool:
    """Whether it is a lock that could not be had: that may have taken a worker long."""
    return isinstance(error, psycopg.errors.LockNotAvailable)


def is_late(since: float) -> bool:
    """Whether a chunk has had races for too long. `since`: its first, by time.monotonic()."""
    return time.monotonic() - since >= LONGEST_REDO


def held_up(error: BaseException, run: int) -> Outcome:
    """The end of a run that never gets its locks: it waits a while, and uses up no attempt."""
    pause = Backoff(AGAIN_AFTER, AGAIN_AT_MOST, random.random).after(run)
    why = f"other transactions hold what it needs: {safe_text(error)}"
    retry = Retry(after=pause, reason=why, counts=False)
    return Outcome(State.FAILED, RETRY, safe_text(why), describe(error), retry)


def failed_by(error: BaseException) -> Outcome:
    """The end of a run that `error` kept from its own."""
    outcome = outcome_of(error.error if isinstance(error, CommitRefused) else error)
    if isinstance(error, ConnectionLostEachTime):
        return replace(outcome, reason=error.reason)
    return outcome


def out_of_luck(error: psycopg.Error, tries: int, run: int) -> Outcome:
    """The end of a run after so many tries, the last of which met `error`."""
    if is_lock_race(error):
        return held_up(error, run)
    return failed_by(ConnectionLostEachTime(tries, error))
