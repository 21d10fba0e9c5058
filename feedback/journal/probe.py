"""Whether the database takes writes: asked by writing."""

from __future__ import annotations

import os

import psycopg
from psycopg import errors

from feedback.journal.connections import Connection
from feedback.journal.queries import query

_SIZE = 12_000
"""Bytes of the row that is tried: more than a page's free space, so that a full disk shows."""
_LOCK_BRIEFLY = "SET LOCAL lock_timeout = '1s'"


def takes_writes(connection: Connection, *, schema: str) -> bool:
    """As try_write(); False where the server refuses it."""
    return refused_writes(connection, schema=schema) is None


def refused_writes(connection: Connection, *, schema: str) -> psycopg.Error | None:
    """As try_write(); the error with which the server refuses it.

    A lock that is in the way, as while an index is rebuilt, or a server that is slow, says nothing
    of writes: those who write will see. Raises psycopg.Error where the connection is lost
    meanwhile.
    """
    try:
        try_write(connection, schema=schema)
    except (errors.LockNotAvailable, errors.QueryCanceled):
        [(read_only,)] = connection.execute("SHOW transaction_read_only").fetchall()
        return None if read_only == "off" else errors.ReadOnlySqlTransaction("it is read-only")
    except psycopg.Error as error:
        if connection.closed:
            raise
        return error
    return None


def try_write(connection: Connection, *, schema: str) -> None:
    """Tries a row in the journal and rolls it back. Raises psycopg.Error.

    LockNotAvailable where somebody else has a lock on that table for longer than a moment.
    The connection is in autocommit mode, outside of a transaction.
    """
    with connection.transaction(force_rollback=True):
        connection.execute(_LOCK_BRIEFLY)
        connection.execute(query("probe_write", schema), [os.urandom(_SIZE)])
