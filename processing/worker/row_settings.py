"""What a handler may have changed of a session, and the journal's statements rely on.

Rows are made here as bytes in UTF-8, which the server would read as something else, and psycopg
reads no other times. The server reports every change of both, so that all is well is known without
asking.
"""

from __future__ import annotations

from typing import Final

from psycopg import pq

PUT_BACK_LOCAL: Final = b"SET LOCAL client_encoding TO 'UTF8'; SET LOCAL DateStyle TO 'ISO'"
PUT_BACK: Final = b"SET client_encoding TO 'UTF8'; SET DateStyle TO 'ISO'"


def as_made(pgconn: pq.abc.PGconn) -> bool:
    """Whether rows are read as they are made here."""
    return pgconn.parameter_status(b"client_encoding") == b"UTF8" and (
        pgconn.parameter_status(b"DateStyle") or b""
    ).startswith(b"ISO")
