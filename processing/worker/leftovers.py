"""What a handler leaves open on the worker's connection ends with its run.

psycopg holds a connection's lock while rows are streamed or copied, and an exception keeps what the
handler had in its variables: whoever used the connection next would wait for ever.
"""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg

from processing.worker.guarded_cursor import Failures

_WAIT = 1.0
"""Seconds for a statement that a thread of the handler's has under way to be cancelled."""


def close_leftovers(connection: psycopg.Connection[Any], failures: Failures) -> None:
    """Ends what still streams or copies; closes a connection that somebody else holds even then."""
    for block in list(failures.reading):
        # What its end says is no news: the state of the transaction says what came of it.
        with contextlib.suppress(Exception):
            block.close()
    if connection.lock.locked():
        _close(connection)


def _close(connection: psycopg.Connection[Any]) -> None:
    """Of two threads none must use what the other one frees: the lock is waited for a while."""
    with contextlib.suppress(psycopg.Error):
        connection.cancel_safe(timeout=_WAIT)
    mine = connection.lock.acquire(timeout=_WAIT)
    try:
        connection.close()
    finally:
        if mine:
            connection.lock.release()
