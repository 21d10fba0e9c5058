"""How the transaction of a segment ends before its time: raised where that is found out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import psycopg

from feedback.contract.states import TRANSACTION_ENDED, State
from feedback.journal.coalescing import Superseded
from feedback.journal.database_errors import Outage, is_unfit, outage_of
from feedback.status.status import StatusWrite
from processing.handlers.outcomes import Outcome
from processing.worker.task import Task

ENDED = Outcome(
    State.FAILED,
    TRANSACTION_ENDED,
    reason="the handler ended the transaction that it shares with other requests",
)

DOUBT = Outcome(State.IN_DOUBT, ENDED.code, reason=ENDED.reason)
"""The same, where what it did is, or may be, committed."""


_LEFT_OPEN = "the handler left something open or at work on the connection that it shares"
"""A pipeline, or a thread: the connection had to be closed, and what was done there is undone."""


class Others(NamedTuple):
    """Whom a transaction settles beside its own requests, to be told once it has landed."""

    number: str
    """Its id, and the life of the server that gave it."""
    life: str
    writes: list[StatusWrite]
    gone: Sequence[Superseded]


class CommitUnclear(psycopg.OperationalError):
    """The connection broke after what commits was sent: it may have landed."""

    beside: Collection[int] = ()
    """Indices of the chunk of which nothing was in that transaction."""
    others: Others | None = None


class CommitRefused(psycopg.ProgrammingError):
    """COMMIT failed for want of a right, a table or a column.

    The journal's rows were written by then: it is a deferred trigger of the user's that lacks it.
    """

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def committing(connected: Callable[[], bool]) -> Iterator[None]:
    """What is done inside commits, and whether it has landed is known while `connected`.

    Raises CommitUnclear where nobody can say, CommitRefused, and what else it raises.
    """
    try:
        yield
    except psycopg.Error as error:
        if outage_of(error, connected=connected(), committing=True) is Outage.UNCLEAR:
            raise CommitUnclear(str(error)) from error
        if is_unfit(error):
            raise CommitRefused(error) from error
        raise


class Broken(Exception):
    """The transaction is gone; it went while one of these requests ran."""

    def __init__(
        self,
        culprits: Sequence[Task],
        xid: int,
        *,
        known: bool = False,
        lost: psycopg.Error | None = None,
        left_open: bool = False,
        before: Sequence[Task] = (),
    ) -> None:
        super().__init__(culprits[0].envelope.id)
        self.culprits = list(culprits)
        self.xid = xid
        self.known = known
        """All of the culprits ended it; otherwise nobody knows which one did."""
        self.lost = lost
        """Set where the connection broke while they ran: perhaps none of them ended anything."""
        self.left_open = left_open
        """The connection was closed for what they left there: nothing says that they ended
        anything."""
        self.before = list(before)
        """What ran in the same transaction before any culprit did."""


def undone_end(outcome: Outcome | None, left_open: bool) -> Outcome:
    """The end of a culprit of which nothing is left, after a run that came to `outcome`.

    One that has left something open and failed otherwise has its own end: that is what there is to
    mend first.
    """
    if not left_open:
        return ENDED
    if outcome is None or outcome.state is State.DONE:
        return replace(ENDED, reason=_LEFT_OPEN)
    told = _LEFT_OPEN if outcome.error is None else f"{outcome.error}; besides, {_LEFT_OPEN}"
    return replace(outcome, error=told)


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
