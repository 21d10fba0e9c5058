"""How long the loop waits for what. Pure."""

from __future__ import annotations

from feedback.backoff import Backoff

IDLE_WAIT = 0.1
BUSY_WAIT = 0.02
"""Seconds to wait for messages while requests run: their results may make room."""
PENDING_WAIT = 0.005
"""Seconds to wait for workers while records wait for one; BUSY_WAIT where nothing that comes could
start before one of them reports, as a turn costs some 0.3 ms of CPU."""
COMMIT_WAIT = 0.002
"""The same while a commit is open, whose answer lets records go and the next commit begin. Where
each worker has its next chunk that can wait for BUSY_WAIT, and the next commit takes along what
comes meanwhile."""
FIRST_PAUSE = 0.0002
PAUSE_PART = 0.1
"""A poll that serves an answer waits on for a message all the same, so it is not waited in: it is
looked for after pauses, each a part of what the commit has taken so far."""
OLD_COMMIT = 1.0
"""Seconds after which the answer is not expected any moment."""
READ_BACK_TIMEOUTS = Backoff(0.1, 0.25)
"""Seconds that reading committed offsets may block the loop, by the number of the try. The client
has no way to ask without blocking, and with the coordinator away nothing answers: with the pauses
of `UNREAD_PAUSES` the loop stands still for about a fifth of an outage, mostly briefly."""
PATIENT_EVERY = 4
PATIENT_TIMEOUTS = Backoff(1.0, 2.0)
"""Those of every fourth try, as a coordinator may be far away, or slow: whether it is that or away
the client does not tell."""
START_TIMEOUTS = Backoff(0.25, 2.0)
"""The same for the questions where to begin in partitions that are ours, while others go on; their
pauses are longer."""


def read_back_timeout(tries: int) -> float:
    """Seconds for the given try, the first being 1, to read committed offsets."""
    if tries % PATIENT_EVERY == 0:
        return PATIENT_TIMEOUTS.after(tries // PATIENT_EVERY)
    return READ_BACK_TIMEOUTS.after(tries)


def commit_wait(age: float) -> float:
    """Seconds to wait in a poll for the answer to a commit of that age."""
    return 0.0 if age < OLD_COMMIT else BUSY_WAIT


def commit_pause(age: float) -> float:
    """Seconds between two such polls."""
    if age >= OLD_COMMIT:
        return 0.0
    return min(max(FIRST_PAUSE, age * PAUSE_PART), COMMIT_WAIT)
