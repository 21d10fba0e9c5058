"""Many things written at once, of which one that is refused must not keep the others out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from feedback.journal.database_errors import outage_of

Item = TypeVar("Item")
Done = TypeVar("Done")


def write_in_halves(
    connection: psycopg.Connection[Any],
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], Done],
    landed: Callable[[Done], object] = lambda _: None,
) -> list[tuple[Item, psycopg.Error]]:
    """Has `write` write them all, or in halves where that fails; those that fail alone, and why.

    Each call is a transaction of its own, or a savepoint of one that is open; what it returns goes
    to `landed` once that has ended well: a COMMIT may fail, too. Raises psycopg.Error where the
    database is away: then nothing is known of what comes after.
    """
    if not items:
        return []
    try:
        with connection.transaction():
            done = write(items)
    except psycopg.Error as error:
        if outage_of(error, connected=not connection.closed) is not None:
            raise
        if len(items) == 1:
            return [(items[0], error)]
        middle = len(items) // 2
        refused = write_in_halves(connection, items[:middle], write, landed)
        return refused + write_in_halves(connection, items[middle:], write, landed)
    landed(done)
    return []
