"""Which database an outbox is in, told apart from all others by a short name."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import psycopg

from feedback.postgres import Connection

_DATABASE: Final = "SELECT current_database()"
# Set by initdb, so the same on all servers of a cluster, whoever is its primary.
_CLUSTER: Final = "SELECT system_identifier FROM pg_control_system()"
_SIZE: Final = 6  # bytes


def database_identity(connection: Connection) -> str:
    """Twelve hex digits, the same after a failover, from a connection in autocommit mode.

    Where the server does not tell its cluster's identifier, databases of one name have one
    identity. Raises psycopg.Error.
    """
    [(database,)] = connection.execute(_DATABASE).fetchall()
    try:
        [(cluster,)] = connection.execute(_CLUSTER).fetchall()
    except (psycopg.ProgrammingError, psycopg.NotSupportedError):
        cluster = ""
    return blake2b(f"{cluster}\0{database}".encode(), digest_size=_SIZE).hexdigest()
