"""Figures of the journal as a whole: what waits, what ended, what somebody has to look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg.rows import dict_row

from feedback.contract.states import SETTLED
from feedback.journal.connections import Connection
from feedback.journal.queries import query

_ENDED: Final = {"done_hour": 0, "done_day": 0, "rate": 0.0, "lost": 0}
_WAITING: Final = {"waiting": 0, "due": 0, "oldest": None, "overdue": None}


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at the journal. Ages in seconds, rates in requests a second."""

    types: list[dict[str, Any]]
    """By type: rate, done_hour, done_day, lost, waiting, due, oldest, overdue."""
    dead: int
    """Requests."""
    in_doubt: int
    messages: int
    """That could not become a request and that nobody has retried."""
    oldest_open: float | None = None
    """Since the journal first heard of the oldest that is claimed by a call or is in doubt."""


def figures(connection: Connection, *, schema: str) -> Figures:
    """Reads them; the connection is in autocommit mode."""
    with connection.cursor(row_factory=dict_row) as cursor:
        states = {"ended": sorted(SETTLED)}
        ended = cursor.execute(query("ended_by_type", schema), states).fetchall()
        waiting = cursor.execute(query("waiting_by_type", schema)).fetchall()
        (questions,) = cursor.execute(query("open_questions", schema)).fetchall()
    types: dict[str, dict[str, Any]] = {}
    for row in (*ended, *waiting):
        types.setdefault(row["type"], {"type": row["type"], **_ENDED, **_WAITING}).update(row)
    return Figures(sorted(types.values(), key=lambda row: str(row["type"])), **questions)


def outcomes(connection: Connection, since: datetime, *, schema: str) -> list[dict[str, Any]]:
    """How requests ended since then, to the minute: type, state, code, n."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query("stats", schema), [since]).fetchall()
