"""Forgets what ended long ago, in small steps that disturb nobody.

Each step deletes within a range of a table's pages, in a transaction of its own, and before the
next one comes a pause that is some times as long. What waits, runs, is in doubt or dead stays
whatever its age. An id whose row is gone is new again, so the retention has to be longer than
anybody may send a request again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from psycopg import sql

from feedback.contract.states import PRUNABLE
from feedback.journal.connections import Connection
from feedback.journal.queries import query

PAGES: Final = 200
"""Pages of a step: 1.6 MB of a table."""
PAUSE: Final = 0.1
"""Seconds between two steps, at least: most have few pages, or none to delete anything from."""
LONGEST_PAUSE: Final = 5.0
"""Seconds: a step of a quarter of a second has mostly waited, for a lock or a server that stood
still, which costs the service nothing."""
SHARE: Final = 0.05
"""Part of the time that is spent on steps: what they cost the service is as little wherever they
take long."""

TABLES: Final = (
    "requests", "attempts", "transitions", "dead_letters", "coalesced", "counters",
    "operator_changes",
)  # fmt: skip
"""In this order: what belongs to a request goes with it, what is left over afterwards."""


class Step(NamedTuple):
    """What one step did: pages that it looked through, rows that it deleted by table."""

    pages: int
    deleted: dict[str, int]
    ids: Sequence[str] = ()
    """Of the requests: each is new again, and no status that is older means it."""
    at: datetime = datetime.min.replace(tzinfo=UTC)
    """When they were deleted."""


def prunable(connection: Connection, before: datetime, *, schema: str) -> dict[str, int]:
    """How many rows have ended before, by table: what prune would delete."""
    values = {"before": before, "states": sorted(PRUNABLE)}
    row = connection.execute(query("prunable", schema), values).fetchone()
    return dict(zip(TABLES, row or (), strict=True))


def pages(connection: Connection, *, schema: str) -> dict[str, int]:
    """The size of each table."""
    return {table: _pages(connection, table, schema) for table in TABLES}


def prune(
    connection: Connection,
    before: datetime,
    *,
    schema: str,
    share: float = SHARE,
    sleep: Callable[[float], Any] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Step]:
    """Deletes what ended before (aware), step by step. The connection is in autocommit mode.

    `share`: the part of its time, above 0 and up to 1, that it works, together with what is done
    with each step. 1: without pauses.
    """
    pause = 0.0
    for table in TABLES:
        size = _pages(connection, table, schema)
        for first in range(0, size, PAGES):
            if pause:
                sleep(pause)
            begun = clock()
            yield _step(connection, table, first, min(PAGES, size - first), before, schema)
            if share < 1:
                pause = max(PAUSE, min(LONGEST_PAUSE, (clock() - begun) * (1 / share - 1)))


def _step(
    connection: Connection, table: str, first: int, count: int, before: datetime, schema: str
) -> Step:
    values = {
        "first": f"({first},0)", "end": f"({first + count},0)", "before": before,
        "states": sorted(PRUNABLE),
    }  # fmt: skip
    cursor = connection.execute(query(f"prune_{table}", schema), values)
    if table != "requests":
        return Step(count, {table: max(0, cursor.rowcount)})
    ids, runs, moves, at = cursor.fetchall()[0]
    return Step(count, {"requests": len(ids), "attempts": runs, "transitions": moves}, ids, at)


def _pages(connection: Connection, table: str, schema: str) -> int:
    name = sql.Identifier(schema, table).as_string(connection)
    row = connection.execute(query("pages", schema), [name]).fetchone()
    return int(row[0]) if row else 0
