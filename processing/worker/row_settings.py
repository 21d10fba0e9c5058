"""What a handler may have changed of a session, and the journal's statements rely on.

Rows are made here as bytes in UTF-8, which the server would read as something else, and psycopg
reads no other times, and escapes bytes by how the server reads a backslash. The server reports
every change of the three, so that all is well is known without asking.
"""

from __future__ import annotations

from typing import Final

from psycopg import pq

PUT_BACK_LOCAL: Final = (
    b"SET LOCAL client_encoding TO 'UTF8'; SET LOCAL DateStyle TO 'ISO'; "
    b"SET LOCAL standard_conforming_strings TO 'on'"
)
PUT_BACK: Final = PUT_BACK_LOCAL.replace(b"SET LOCAL", b"SET")


def as_made(pgconn: pq.abc.PGconn) -> bool:
    """Whether rows are read as they are made here."""
    told = pgconn.parameter_status
    return (
        told(b"client_encoding") == b"UTF8"
        and (told(b"DateStyle") or b"").startswith(b"ISO")
        and told(b"standard_conforming_strings") == b"on"
    )
