"""How the transaction of a segment ends before its time: raised where that is found out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import psycopg

from feedback.contract.states import TRANSACTION_ENDED, State
from processing.handlers.outcomes import Outcome
from processing.worker.task import Task

ENDED = Outcome(
    State.FAILED,
    TRANSACTION_ENDED,
    reason="the handler ended the transaction that it shares with other requests",
)

DOUBT = Outcome(State.IN_DOUBT, ENDED.code, reason=ENDED.reason)
"""The same, where what it did is, or may be, committed."""


class Broken(Exception):
    """The transaction is gone; it went while one of these requests ran."""

    def __init__(
        self,
        culprits: Sequence[Task],
        xid: int,
        *,
        known: bool = False,
        lost: psycopg.Error | None = None,
        before: Sequence[Task] = (),
    ) -> None:
        super().__init__(culprits[0].envelope.id)
        self.culprits = list(culprits)
        self.xid = xid
        self.known = known
        """All of the culprits ended it; otherwise nobody knows which one did."""
        self.lost = lost
        """Set where the connection broke while they ran: perhaps none of them ended anything."""
        self.before = list(before)
        """What ran in the same transaction before any culprit did."""


class Struck(Exception):
    """A handler failed because of the database, or of another transaction: it is done again."""

    def __init__(self, tasks: Sequence[Task], error: psycopg.Error) -> None:
        super().__init__(tasks[0].envelope.id)
        self.tasks = list(tasks)
        self.error = error


class TransactionEnded(Exception):
    """A handler ended the transaction in spite of the guard."""


@contextlib.contextmanager
def ended_where_missing() -> Iterator[None]:
    """Raises TransactionEnded where the savepoint is no more."""
    try:
        yield
    except (
        psycopg.errors.InvalidSavepointSpecification,
        psycopg.errors.NoActiveSqlTransaction,
    ) as error:
        raise TransactionEnded(str(error)) from error
