"""Requests looked for among very many rows, in a given time.

Most filters have no index, and an index for each would cost every request. So the latest rows are
looked through first, in windows of time that grow, until there are enough or the time is over; the
answer says how far it got.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from psycopg.rows import dict_row

from feedback.contract.times import EARLIEST, LATEST
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.bounded import TookTooLong, bounded
from feedback.operations.request_reads import OPEN, Row, conditions_of
from feedback.sql_times import nearest

WINDOWS: Final = (
    timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=10), timedelta(hours=1),
    timedelta(days=1), timedelta(days=30), None,
)  # fmt: skip
"""How far back it is looked, one after the other; None: as far as there are rows."""
_MADE: Final = nearest("created_at")
"""When a row was made, as it is read: what a place says is compared with that, and sorted by it."""


class Found(NamedTuple):
    """What was found, and where it was not looked."""

    rows: list[Row]
    more: bool
    """There are more that match, older than these."""
    since: datetime | None
    """What was made before this time was not looked at; None: all that there is was."""

    @property
    def before(self) -> str | None:
        """Where the next ones begin, for the filter of this name."""
        return place_of(self.rows[-1]) if self.more and self.rows else None


class Chosen(NamedTuple):
    """A request as it stood when it was chosen to be moved."""

    id: str
    type: str
    state: str
    run: int


def search(
    connection: Connection,
    filters: Mapping[str, Any],
    limit: int,
    *,
    seconds: float,
    schema: str,
) -> Found:
    """At most `limit` rows as of list_requests, the latest made first, in about so many seconds.

    Filters as conditions_of() has them, and `before`: a Found's, whose older rows are wanted.
    Raises TookTooLong where there was no time to look anywhere.
    """
    filters = dict(filters)
    before = _place(filters.pop("before", None))
    if filters.get("id") and "*" not in filters["id"]:
        return _window(connection, filters, before, None, limit, seconds, schema)
    end = time.monotonic() + seconds
    found: Found | None = None
    start = before[0] if before else datetime.now(UTC)
    for window in WINDOWS:
        since = None if window is None else start - window
        left = end - time.monotonic()
        if found is not None and left <= 0:
            break
        try:
            found = _window(connection, filters, before, since, limit, left, schema)
        except TookTooLong:
            if found is None:
                raise
            break
        if found.more:
            return found._replace(since=None)
    assert found is not None  # noqa: S101  (the first window was looked at, or raised)
    return found


def select_some(
    connection: Connection,
    filters: Mapping[str, Any],
    most: int,
    *,
    seconds: float,
    schema: str,
) -> list[Chosen]:
    """At most `most` rows that match, those that were made first. Raises TookTooLong.

    In this order what is made meanwhile changes nothing where there are more.
    """
    conditions, values = conditions_of(filters)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    text = f"{query('choose', schema)} {where} ORDER BY created_at, id LIMIT %(most)s"
    with bounded(connection, seconds):
        rows = connection.execute(text, {**values, "most": most}, prepare=False).fetchall()
    return [Chosen(*row) for row in rows]


def select_named(connection: Connection, ids: Sequence[str], *, schema: str) -> list[Chosen]:
    """Those of these ids that the journal knows, by id."""
    text = f"{query('choose', schema)} WHERE id = ANY (%s) ORDER BY id"
    return [Chosen(*row) for row in connection.execute(text, [list(ids)])]


def place_of(row: Row) -> str:
    """Where a row stands among those that were made at its time and before."""
    return f"{row['created_at'].astimezone(UTC).isoformat()} {row['id']}"


def _place(text: str | None) -> tuple[datetime, str] | None:
    """Raises ValueError for what is no place."""
    if not text:
        return None
    at, _, name = text.partition(" ")
    moment = datetime.fromisoformat(at)
    if moment.tzinfo is None or "\0" in name:
        raise ValueError("it is no time with a time zone, and an id")
    return min(max(moment, EARLIEST), LATEST), name


def _window(
    connection: Connection,
    filters: Mapping[str, Any],
    before: tuple[datetime, str] | None,
    since: datetime | None,
    limit: int,
    seconds: float,
    schema: str,
) -> Found:
    conditions, values = conditions_of(filters)
    if since is not None:
        # What ended before was made before, and the index is on the end.
        conditions.append("created_at >= %(made_since)s")
        conditions.append(f"(finished_at >= %(made_since)s OR {OPEN})")
        values["made_since"] = since
    if before is not None:
        conditions.append(
            f"({_MADE} < %(before)s OR ({_MADE} = %(before)s AND id > %(before_id)s))"
        )
        values["before"], values["before_id"] = before
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    text = f"{query('list_requests', schema)} {where}ORDER BY {_MADE} DESC, id LIMIT %(limit)s"
    with bounded(connection, seconds), connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(text, {**values, "limit": limit + 1}, prepare=False).fetchall()
    return Found(rows[:limit], len(rows) > limit, since)
