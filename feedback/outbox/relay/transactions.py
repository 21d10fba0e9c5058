"""Transactions of a relay, which the database ends where nothing more is said in them."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Final

from feedback.postgres import Connection, bounded_transaction

STATEMENT: Final = 30.0
"""Seconds that one statement may take."""
LOCK: Final = 5.0
"""Seconds for which a sender waits for a lock: before it sends, as after it has all of them."""
IDLE: Final = 60.0
"""Seconds that a transaction may stand idle: a relay that is frozen then lets go of what it has
locked. The longest waits in one are a batch's for its brokers and a page's for its statuses."""


def idle_left(since: float) -> float:
    """Seconds for which a transaction is surely still there.

    Its last statement was begun at `since`, on the monotonic clock; the database counts from the
    end of that.
    """
    return since + IDLE - time.monotonic()


def transaction(connection: Connection, lock: float = STATEMENT) -> AbstractContextManager[None]:
    """One with these bounds. Raises psycopg.Error."""
    timeouts = {
        "statement_timeout": STATEMENT,
        "lock_timeout": lock,
        "idle_in_transaction_session_timeout": IDLE,
    }
    return bounded_transaction(connection, timeouts)
