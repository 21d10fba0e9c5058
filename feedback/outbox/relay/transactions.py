"""Transactions of a relay, which the database ends where nothing more is said in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from feedback.postgres import Connection

STATEMENT: Final = 30.0
"""Seconds that one statement may take."""
IDLE: Final = 60.0
"""Seconds that a transaction may stand idle: a relay that is frozen then lets go of what it has
locked. The longest waits in one are a batch's for its brokers and a page's for its statuses."""


def idle_left(since: float) -> float:
    """Seconds for which a transaction is surely still there whose last statement was begun then, on
    the monotonic clock: the database counts from that one's end."""
    return since + IDLE - time.monotonic()


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """One, in autocommit mode; undone where it raises. Raises psycopg.Error.

    Its bounds come with its BEGIN, and end with it. Behind a proxy that pools transactions the
    settings of a session stay with a connection that is somebody else's next.
    """
    connection.execute(
        b"BEGIN ISOLATION LEVEL READ COMMITTED;"
        b" SET LOCAL statement_timeout = %d;"
        b" SET LOCAL idle_in_transaction_session_timeout = %d" % (STATEMENT * 1000, IDLE * 1000),
        prepare=False,  # three statements in one message
    )
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            connection.rollback()
        raise
    connection.commit()
