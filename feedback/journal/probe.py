"""Whether the journal can be worked with: asked by writing, and of the user's privileges."""

from __future__ import annotations

import os
from collections.abc import Collection

import psycopg
from psycopg import errors

from feedback.journal.connections import Connection
from feedback.journal.privileges import check_privileges
from feedback.journal.queries import query

_SIZE = 12_000
"""Bytes of the row that is tried: more than a page's free space, so that a full disk shows."""
_LOCK_BRIEFLY = "SET LOCAL lock_timeout = '1s'"


def refused_work(
    connection: Connection, *, schema: str, uses: Collection[str] = ()
) -> psycopg.Error | None:
    """The error with which the server refuses what a consumer with these `uses` does; else None.

    See feedback.journal.privileges. A lock that is in the way, as while an index is rebuilt, or a
    server that is slow, says nothing of writes: those who write will see. Raises psycopg.Error
    where the connection is lost meanwhile.
    """
    try:
        check_privileges(connection, schema=schema, uses=uses)
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
