"""What a handler leaves open on the worker's connection ends with its run.

psycopg holds a connection's lock while rows are streamed or copied, and an exception keeps what the
handler had in its variables: whoever used the connection next would wait for ever.
"""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg

from feedback.postgres import cut
from processing.worker.failures import Failures

_WAIT = 1.0
"""Seconds for a thread of the handler's to notice that its connection is gone."""


def close_leftovers(connection: psycopg.Connection[Any], failures: Failures) -> bool:
    """Ends what is open; whether somebody else holds the connection once nothing streams there.

    That one is cut, and not to be used any more: who waits there reads its end, whatever the server
    does. It is closed only once nobody is in it: that frees what a thread may be about to use.
    """
    for block in list(failures.reading):
        # What its end says is no news: the state of the transaction says what came of it.
        with contextlib.suppress(Exception):
            block.close()
    if not connection.lock.locked():
        end_blocks(failures)
        return False
    cut(connection)
    if connection.lock.acquire(timeout=_WAIT):
        try:
            connection.close()
        finally:
            connection.lock.release()
    return True


def end_blocks(failures: Failures) -> None:
    """Ends `transaction()` blocks as the end of a `with` does: the innermost first."""
    for block in reversed(failures.blocks[:]):
        with contextlib.suppress(Exception):  # as above
            block.__exit__(None, None, None)
