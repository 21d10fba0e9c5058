"""What the journal can tell beside its rows: how it went over time, and what is odd in it.

Every question is bounded in time: TookTooLong is raised beyond. What has no index but the time is
looked for in the latest rows first, in windows of time that grow, as in request_search: what was
found in the last of them for which there was time is the answer, and says how far it got.
`types` (`*` stands for anything): only what is of one of them; None: of all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from psycopg.rows import dict_row

from feedback.contract.states import SETTLED, State
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.bounded import TookTooLong, bounded
from feedback.operations.request_reads import Row, pattern

SECONDS: Final = 1.0
NEWEST: Final = 10_000
"""Rows of a table that are looked at where what is wanted may be rare among them, the latest."""
LONGEST: Final = 64 * 1024
"""Bytes of a payload where many are looked at."""
WINDOWS: Final = tuple(timedelta(minutes=n) for n in (1, 10, 60, 6 * 60, 24 * 60))
"""How far back it is looked, one after the other."""
_RUN: Final = (State.DONE, State.REJECTED, State.FAILED, State.DEAD)
Types: TypeAlias = Sequence[str] | None


class LookedBack(NamedTuple):
    """What was found, and how far back it was looked."""

    rows: list[Row]
    back: timedelta
    whole: bool
    """Whether that is as far as was asked for."""


class OffsetsAsked(NamedTuple):
    """Messages of a partition: from the first offset to before the second."""

    topic: str
    partition: int
    first: int
    end: int


def ended_over_time(connection: Connection, minutes: int, step: int, *, schema: str) -> list[Row]:
    """How many ended, by type, in steps of so many seconds: at (Unix time), type, done, other."""
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    values = {"since": since, "step": step, "ended": sorted(SETTLED)}
    return _rows(connection, "ended_over_time", values, schema)


def times_over_time(connection: Connection, minutes: int, step: int, *, schema: str) -> list[Row]:
    """Wait and run in seconds, as [p50, p95], by type and step: at, type, n, wait, run."""
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    values = {"since": since, "step": step, "states": [str(state) for state in _RUN]}
    return _rows(connection, "times_over_time", values, schema)


def not_run_counts(
    connection: Connection,
    hours: int,
    *,
    types: Types = None,
    schema: str,
    seconds: float = SECONDS,
) -> LookedBack:
    """What was committed and lost, parked, or read again: type, state, code, n, last."""
    return _back(connection, "not_run_counts", hours, _of(types), schema, seconds)


def most_resent(
    connection: Connection,
    hours: int,
    limit: int,
    *,
    types: Types = None,
    schema: str,
    seconds: float = SECONDS,
) -> LookedBack:
    """Requests whose copies came most often, of those that ended since, or were made since."""
    values = {"limit": limit, **_of(types)}
    return _back(connection, "most_resent", hours, values, schema, seconds)


def coalesced_groups(
    connection: Connection,
    hours: int,
    limit: int,
    *,
    types: Types = None,
    schema: str,
    seconds: float = SECONDS,
) -> LookedBack:
    """Requests that took the place of others: superseded_by, type, reference, n, first, last, ids.

    `ids` are the latest twenty of those others.
    """
    values = {"limit": limit, **_of(types)}
    return _back(connection, "coalesced_groups", hours, values, schema, seconds)


def superseded_by(
    connection: Connection, id: str, since: datetime, limit: int, *, schema: str
) -> LookedBack:
    """Requests whose place this one took: id, created_at, finished_at.

    Looked for from the time `since` on; `back` is how far on.
    """
    values = {"id": id, "since": since, "limit": limit}
    # A clock may be a little behind the database's.
    most = datetime.now(UTC) - since + timedelta(minutes=1)
    windows = [(span, {"until": since + span}) for span in _spans(most)]
    return _growing(connection, "superseded_by_one", windows, values, schema, 0.1)


def conflicts(
    connection: Connection,
    limit: int,
    *,
    types: Types = None,
    schema: str,
    seconds: float = SECONDS,
) -> list[Row]:
    """Messages with the id of another request, each beside what is stored of that one.

    Of the NEWEST messages that could not become a request. `types` are those of what is stored.
    Payloads of more than LONGEST bytes are None; `payload_bytes` and `other_payload_bytes` say how
    long they are.
    """
    values = {"limit": limit, "longest": LONGEST, "newest": NEWEST, **_of(types)}
    return _rows(connection, "conflicts", values, schema, seconds=seconds)


def requests_at_offsets(
    connection: Connection,
    places: Sequence[OffsetsAsked],
    hours: int,
    limit: int,
    *,
    types: Types = None,
    schema: str,
    seconds: float = SECONDS,
) -> LookedBack:
    """Rows of messages of these places, at most so many of each, in the order of offsets."""
    values: dict[str, Any] = {
        "topics": [place.topic for place in places],
        "partitions": [place.partition for place in places],
        "firsts": [place.first for place in places],
        "ends": [place.end for place in places],
        "limit": limit, **_of(types),
    }  # fmt: skip
    return _back(connection, "requests_at_offsets", hours, values, schema, seconds)


def latest_changes(
    connection: Connection,
    limit: int,
    *,
    types: Types = None,
    schema: str,
    seconds: float = SECONDS,
) -> list[Row]:
    """What operators did last, who and why, requests moved among it: of the NEWEST of each.

    at, what (request, schedule, limits, dead_letter), name, type, action, from_state, to_state,
    detail, who, why.
    """
    values = {"limit": limit, "newest": NEWEST, **_of(types)}
    return _rows(connection, "latest_changes", values, schema, seconds=seconds)


def _of(types: Types) -> Row:
    return {"types": None if types is None else [pattern(one) for one in types]}


def _back(
    connection: Connection, name: str, hours: int, values: Row, schema: str, seconds: float
) -> LookedBack:
    """In windows that end now, the last of them as long as was asked for."""
    now = datetime.now(UTC)
    windows = [(span, {"since": now - span}) for span in _spans(timedelta(hours=hours))]
    return _growing(connection, name, windows, values, schema, seconds)


def _spans(most: timedelta) -> list[timedelta]:
    return [*(window for window in WINDOWS if window < most), most]


def _growing(
    connection: Connection,
    name: str,
    windows: Sequence[tuple[timedelta, Row]],
    values: Row,
    schema: str,
    seconds: float,
) -> LookedBack:
    """What is found in the last window for which there is time."""
    end = time.monotonic() + seconds
    found: LookedBack | None = None
    for span, bounds in windows:
        left = end - time.monotonic()
        if found is not None and left <= 0:
            break
        try:
            rows = _rows(connection, name, values | bounds, schema, seconds=left)
        except TookTooLong:
            if found is None:
                raise
            break
        found = LookedBack(rows, span, span == windows[-1][0])
    assert found is not None  # noqa: S101  (the first window was looked at, or raised)
    return found


def _rows(
    connection: Connection, name: str, values: Row, schema: str, *, seconds: float = SECONDS
) -> list[Row]:
    with bounded(connection, seconds), connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query(name, schema), values, prepare=False).fetchall()
