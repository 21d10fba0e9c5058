"""Which request asked for which: what handlers have asked for with `request.follow_up`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from psycopg.rows import dict_row

from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.request_reads import Row, pattern


class FollowUps(NamedTuple):
    """What stands before a request and after it: rows of id, type, state and code."""

    asked_by: Row | None
    """Who asked for it; of one that the journal has forgotten only the id. None: nobody did."""
    asked_for: list[Row]
    """What it asked for, as far as it has a row, in the order of ids."""
    more: bool = False
    """Whether it asked for more than these."""


def follow_ups_of(
    connection: Connection,
    id: str,
    most: int,
    *,
    schema: str,
    types: Sequence[str] | None = None,
) -> FollowUps:
    """Who asked for the request `id`, and at most so many of what it asked for itself.

    With `types` (`*` stands for anything) only what is known to be of one of them.
    """
    patterns = None if types is None else [pattern(one) for one in types]
    values = {"id": id, "types": patterns, "limit": most + 1}
    with connection.cursor(row_factory=dict_row) as cursor:
        asked_by = cursor.execute(query("asked_by", schema), values, prepare=False).fetchone()
        rows = cursor.execute(query("asked_for", schema), values, prepare=False).fetchall()
    return FollowUps(asked_by, rows[:most], more=len(rows) > most)
