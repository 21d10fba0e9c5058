"""Many things written at once, of which one that is refused must not keep the others out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import psycopg

from feedback.journal.commits import Commits
from feedback.journal.database_errors import outage_of

LOSSES_TOGETHER: Final = 3
"""Connections that several may lose together, before they are halved to find what breaks them."""
LOSSES: Final = 10
"""Connections that one may lose alone, before it is given up."""
Item = TypeVar("Item")
Done = TypeVar("Done")
Fact = TypeVar("Fact")


def write_in_halves(
    connection: psycopg.Connection[Any],
    items: Sequence[Item],
    write: Callable[[Sequence[Item]], Done],
    landed: Callable[[Done], object] = lambda _: None,
    *,
    commits: Commits[Fact] | None = None,
    facts_of: Callable[[Done], Iterable[Fact]] = lambda _: (),
) -> list[tuple[Item, psycopg.Error]]:
    """Has `write` write them all, or in halves where that fails; those that fail alone, and why.

    Each call is a transaction of its own, or a savepoint of one that is open; what it returns goes
    to `landed` once that has ended well: a COMMIT may fail, too. `commits`, which is no use for
    savepoints, hears of what `facts_of` finds in it, also where that is known only later. Raises
    psycopg.Error where the database is away: then nothing is known of what comes after.
    """
    if not items:
        return []
    try:
        with (commits or Commits()).transaction(connection) as facts:
            done = write(items)
            facts.extend(facts_of(done))
    except psycopg.Error as error:
        if outage_of(error, connected=not connection.closed, journals=True) is not None:
            raise
        if len(items) == 1:
            return [(items[0], error)]
        middle = len(items) // 2
        refused = []
        for half in (items[:middle], items[middle:]):
            refused += write_in_halves(
                connection, half, write, landed, commits=commits, facts_of=facts_of
            )
        return refused
    landed(done)
    return []
