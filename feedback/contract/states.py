"""The states of a request, their ranks, and the codes that stand beside them.

A rank orders the states of one run: a status write never goes back in rank. `v` in a status is
five digits of the run number and one of the rank, so two statuses compare as text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a request stands. No status at all means unknown: not arrived, lost or forgotten."""

    ACCEPTED = "accepted"  # the producer has sent it
    RUNNING = "running"  # a worker has started it (types whose runs are long)
    WAITING = "waiting"  # delayed, to be retried, parked or coalescing
    FAILED = "failed"  # a run failed and left no effect; sending again runs it again
    IN_DOUBT = "in_doubt"  # external effects: it may or may not have happened
    DEAD = "dead"  # runs used up, or it killed its worker twice
    CANCELLED = "cancelled"  # cancelled while it waited or ran
    DONE = "done"  # effects and result are committed
    REJECTED = "rejected"  # refused for good
    SUPERSEDED = "superseded"  # a newer request with its type and reference took its place


RANK: Final[dict[str, int]] = {
    State.ACCEPTED: 1,
    State.RUNNING: 2,
    State.WAITING: 3,
    State.FAILED: 4,
    State.IN_DOUBT: 5,
    State.DEAD: 8,
    State.CANCELLED: 8,
    State.DONE: 9,
    State.REJECTED: 9,
    State.SUPERSEDED: 9,
}

MAX_RUN: Final = 99_999  # five digits in `v`
MOST_CRASHES: Final = 2  # deaths of workers with a request in hand that make it `dead`
MOST_LOST_CLAIMS: Final = 6  # owners in a row that were lost with a waiting row, and make it `dead`

# Final: nothing moves it any more. The REOPENABLE ones among them can be moved by an operator,
# which raises the run number.
REOPENABLE: Final[frozenset[str]] = frozenset({State.DEAD, State.CANCELLED})
FINAL: Final[frozenset[str]] = REOPENABLE | {State.DONE, State.REJECTED, State.SUPERSEDED}
# Settled: a producer that waits gets its answer.
SETTLED: Final[frozenset[str]] = FINAL | {State.FAILED, State.IN_DOUBT}
# Prunable: once its row is old nobody has to look at it any more.
PRUNABLE: Final[frozenset[str]] = SETTLED - {State.DEAD, State.IN_DOUBT}

# Codes. Handlers add their own with Reject("no_funds").
OK: Final = "ok"
DUPLICATE: Final = "duplicate"
READ_AGAIN: Final = "read_again"  # counted only: a message that was run before, and not sent again
INSTANCE_DIED: Final = "instance_died"
HANDLER_ERROR: Final = "handler_error"
TIMEOUT: Final = "timeout"
WORKER_DIED: Final = "worker_died"
DATABASE_UNAVAILABLE: Final = "database_unavailable"
SHUTDOWN: Final = "shutdown"
INVALID_PAYLOAD: Final = "invalid_payload"
UNKNOWN_TYPE: Final = "unknown_type"
EXPIRED: Final = "expired"
PARKED: Final = "parked"
TRANSACTION_ENDED: Final = "transaction_ended"
RETRY: Final = "retry"
DELAYED: Final = "delayed"
COALESCING: Final = "coalescing"
FOLLOW_UP: Final = "follow_up"
SCHEDULED: Final = "scheduled"
RETRIED: Final = "retried"
CANCELLED: Final = "cancelled"


class DeadLetterReason(StrEnum):
    """Why a message is a dead letter; also the code that it is counted under.

    The journal's CHECK on `dead_letters.reason` lists them once more, so that no writer can store
    another: a new one needs a migration besides.
    """

    MALFORMED = "malformed"  # it cannot become a request
    CONFLICT = "conflict"  # its id belongs to a request with another payload or type


# Codes of a `failed` that says: nothing has run, send it again.
NOT_RUN: Final[frozenset[str]] = frozenset({DATABASE_UNAVAILABLE, SHUTDOWN})
# Codes of a `failed` that no journal row stands behind. Of the message that was malformed there is
# a dead letter, and under its id the next one begins anew.
WITHOUT_ROW: Final[frozenset[str]] = NOT_RUN | {DeadLetterReason.MALFORMED.value}
