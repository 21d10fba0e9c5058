"""Ends sessions of dead workers: a COMMIT may still be running there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import psycopg

from feedback.journal.connections import Connection

_END: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = %s AND backend_start = %s::timestamptz"
)
_GONE_WAIT: Final = 0.01


def end_backends(
    connection: Connection, backends: Sequence[tuple[int, str]], timeout: float = 5.0
) -> None:
    """Ends server processes, (pid, start), and waits until they have gone.

    Raises OperationalError where they have not all gone within `timeout` seconds.
    """
    end = time.monotonic() + timeout
    for pid, start in dict.fromkeys(map(tuple, backends)):
        while connection.execute(_END, [pid, start]).fetchone() is not None:
            if time.monotonic() > end:
                raise psycopg.OperationalError(f"the backend {pid} does not end")
            time.sleep(_GONE_WAIT)
