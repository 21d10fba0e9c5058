"""Whether the database takes writes: asked by writing."""

from __future__ import annotations

import os

import psycopg

from feedback.journal.connections import Connection
from feedback.journal.queries import query

_SIZE = 12_000
"""Bytes of the row that is tried: more than a page's free space, so that a full disk shows."""


def takes_writes(connection: Connection, *, schema: str) -> bool:
    """As try_write(); False where the server refuses it.

    Raises psycopg.Error where the connection is lost meanwhile.
    """
    try:
        try_write(connection, schema=schema)
    except psycopg.Error:
        if connection.closed:
            raise
        return False
    return True


def try_write(connection: Connection, *, schema: str) -> None:
    """Tries a row in the journal and rolls it back. Raises psycopg.Error.

    The connection is in autocommit mode, outside of a transaction.
    """
    with connection.transaction(force_rollback=True):
        connection.execute(query("probe_write", schema), [os.urandom(_SIZE)])
