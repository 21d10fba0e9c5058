"""Whether the database takes writes: asked by writing."""

from __future__ import annotations

import os

import psycopg

from feedback.journal.connections import Connection
from feedback.journal.queries import query

_SIZE = 12_000
"""Bytes of the row that is tried: more than a page's free space, so that a full disk shows."""


def takes_writes(connection: Connection, *, schema: str) -> bool:
    """Tries a row in the journal and rolls it back; False where the server refuses it.

    The connection is in autocommit mode, outside of a transaction. Raises psycopg.Error where it is
    lost meanwhile.
    """
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(query("probe_write", schema), [os.urandom(_SIZE)])
    except psycopg.Error:
        if connection.closed:
            raise
        return False
    return True
