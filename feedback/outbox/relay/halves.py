"""What is written together of many rows, where one that is refused must not keep the others out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import psycopg

from feedback.postgres import Connection

_OF_ALL: Final = ("08", "25", "40", "42", "53", "55", "57", "58", "XX")
"""Classes of SQLSTATE that say nothing of what was written: the server has no room or is ending,
another transaction was in the way, tables are missing."""

Item = TypeVar("Item")
Done = TypeVar("Done")


def write_in_halves(
    connection: Connection,
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], Iterable[Done]],
) -> tuple[list[Done], list[tuple[Item, psycopg.Error]]]:
    """Writes in savepoints: all at once, or in halves where that is refused.

    Returns what `write` has returned, and what was refused by itself. Raises psycopg.Error where
    that is about more than one of them.
    """
    if not items:
        return [], []
    try:
        with connection.transaction():
            return list(write(items)), []
    except psycopg.Error as error:
        if connection.closed or not _is_of_one(error):
            raise
        if len(items) == 1:
            return [], [(items[0], error)]
    middle = len(items) // 2
    done, refused = write_in_halves(connection, items[:middle], write)
    more, others = write_in_halves(connection, items[middle:], write)
    return [*done, *more], [*refused, *others]


def _is_of_one(error: psycopg.Error) -> bool:
    """Whether it may be about a single row."""
    if error.sqlstate is None:  # nothing was sent
        return isinstance(error, psycopg.DataError)
    return not error.sqlstate.startswith(_OF_ALL)
