"""The database's own clock, between two looks at which it was asked for an age."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import scalar_row


@dataclass(slots=True)
class Between:
    """When a question was asked, and answered, as the database has it."""

    began: datetime
    ended: datetime

    def ages(self, made: datetime) -> tuple[float, float]:
        """The least and the most seconds that had passed since then."""
        return (self.began - made).total_seconds(), (self.ended - made).total_seconds()

    def has_age(self, age: float, made: datetime, rounded: float = 1e-3) -> bool:
        """Whether the answer may be that, given to within so many seconds."""
        least, most = self.ages(made)
        return least - rounded <= age <= most + rounded


@contextmanager
def between(connection: psycopg.Connection[Any]) -> Iterator[Between]:
    """Around the question; the connection is in autocommit mode."""
    now = _now(connection)
    seen = Between(now, now)
    yield seen
    seen.ended = _now(connection)


def _now(connection: psycopg.Connection[Any]) -> datetime:
    with connection.cursor(row_factory=scalar_row) as cursor:
        found: datetime = cursor.execute("SELECT clock_timestamp()").fetchall()[0]
    return found
