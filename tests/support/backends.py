"""Server processes of the database's that do not end, as one that waits for a disk does not."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import psycopg


def backend_of(connection: psycopg.Connection[Any]) -> tuple[int, str]:
    """The server process behind a connection: pid and start."""
    row = connection.execute(
        "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Meanwhile a server process does nothing: it does not end, either."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
