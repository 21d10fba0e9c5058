"""Which types wait, and when the first row of each is due.

A walk costs one index look-up a type, so it is bounded: anybody can make up types. It goes round,
so that none stays out of sight behind others: the next one starts where the last one ended.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import psycopg

from feedback.journal.queries import query

Connection: TypeAlias = psycopg.Connection[Any]

LONGEST: Final = 2000
"""Types that one walk looks at."""


def first_due(
    connection: Connection, after: str = "", *, schema: str
) -> tuple[list[tuple[str, float]], str]:
    """(type, seconds until its first row is due), and the type after which the next walk starts.

    Those that are due first come first; '' is the beginning.
    """
    found = last = _walk(connection, after, LONGEST, schema)
    left = LONGEST - len(found)
    if left and after:
        last = _walk(connection, "", left, schema)
        left -= len(last)
    place = "" if left else last[-1][0]
    # Where there are few, the second one sees some of them again.
    return sorted({**dict(found), **dict(last)}.items(), key=_seconds), place


def _walk(connection: Connection, after: str, most: int, schema: str) -> list[tuple[str, float]]:
    values = {"after": after, "most": most}
    return connection.execute(query("due_types", schema), values).fetchall()


def _seconds(found: tuple[str, float]) -> float:
    return found[1]
