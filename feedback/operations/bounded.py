"""Statements that give up in time: a look at the journal must not cost it more than it is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors

from feedback.errors import OncepoolError
from feedback.journal.connections import Connection

_LEAST = 0.01


class TookTooLong(OncepoolError):
    """The journal holds too many rows for this question and so little time."""


@contextmanager
def bounded(connection: Connection, seconds: float) -> Iterator[None]:
    """A transaction that only reads, each of its statements within `seconds`.

    Raises TookTooLong.
    """
    limit = f"{max(seconds, _LEAST) * 1000:.0f}ms"
    try:
        with connection.transaction():
            connection.execute(
                "SELECT set_config('transaction_read_only', 'on', true),"
                " set_config('statement_timeout', %s, true),"
                # To compile a plan takes longer than most looks may.
                " set_config('jit', 'off', true)",
                [limit],
            )
            yield
    except errors.QueryCanceled:
        raise TookTooLong(
            f"the journal could not answer this within {seconds:g} s: ask for less of it"
        ) from None
