"""Ends sessions of dead workers: a COMMIT may still be running there.

What such a session had begun must not be looked up, given back or run again before it has ended:
what it commits after that would come a second time, or to a row that nobody expects it in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import psycopg
from psycopg import errors

from feedback.backend import Backend
from feedback.journal.connections import Connection

END_WAIT: Final = 1.0
"""Seconds that sessions may take to end, when they are asked for the first time."""
_END: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = %s AND backend_start = %s::timestamptz"
)
_GONE_WAIT: Final = 0.01
_LONGEST_WAIT: Final = 30.0
"""Seconds, where nothing can go on before."""


def end_backends(
    connection: Connection, backends: Iterable[Backend], timeout: float
) -> list[Backend]:
    """Ends server processes and waits until they have gone; returns those that have not.

    At most `timeout` seconds for all of them; 0: one look at each. A process that waits for a disk
    or a network file system that does not answer ends when that does, if ever; one of another role
    may not be ended from here. Raises psycopg.Error where the database is away. The connection is
    in autocommit mode, with no transaction open.
    """
    end = time.monotonic() + timeout
    left = list(dict.fromkeys((pid, start) for pid, start in backends))
    while left := [backend for backend in left if _stands(connection, backend)]:
        if time.monotonic() >= end:
            break
        time.sleep(_GONE_WAIT)
    return left


def end_for_good(connection: Connection, backend: Backend) -> None:
    """Ends one. Raises OperationalError where it does not go, and as end_backends()."""
    if end_backends(connection, [backend], _LONGEST_WAIT):
        raise psycopg.OperationalError(f"the backend {backend[0]} does not end")


def _stands(connection: Connection, backend: Backend) -> bool:
    """Tells a server process to end; False once it has."""
    try:
        return connection.execute(_END, backend).fetchone() is not None
    except errors.InsufficientPrivilege:
        return True
