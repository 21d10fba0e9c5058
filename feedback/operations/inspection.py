"""What the journal can tell beside its rows: how it went over time, and what is odd in it.

Every question is bounded in time: TookTooLong is raised beyond. Ages are looked back in hours.
`types` (`*` stands for anything): only what is of one of them; None: of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from psycopg.rows import dict_row

from feedback.contract.states import SETTLED, State
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.bounded import bounded
from feedback.operations.request_reads import SCHEMA, Row, pattern

SECONDS: Final = 1.0
LONGEST: Final = 64 * 1024
"""Bytes of a payload where many are looked at."""
_RUN: Final = (State.DONE, State.REJECTED, State.FAILED, State.DEAD)
Types: TypeAlias = Sequence[str] | None


def ended_over_time(
    connection: Connection, minutes: int, step: int, *, schema: str = SCHEMA
) -> list[Row]:
    """How many ended, by type, in steps of so many seconds: at (Unix time), type, done, other."""
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    values = {"since": since, "step": step, "ended": sorted(SETTLED)}
    return _rows(connection, "ended_over_time", values, schema)


def times_over_time(
    connection: Connection, minutes: int, step: int, *, schema: str = SCHEMA
) -> list[Row]:
    """Wait and run in seconds, as [p50, p95], by type and step: at, type, n, wait, run."""
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    values = {"since": since, "step": step, "states": [str(state) for state in _RUN]}
    return _rows(connection, "times_over_time", values, schema)


def not_run_counts(
    connection: Connection, hours: int, *, types: Types = None, schema: str = SCHEMA
) -> list[Row]:
    """What was committed and lost, parked, or read again: type, state, code, n, last."""
    values = {"since": _ago(hours), **_of(types)}
    return _rows(connection, "not_run_counts", values, schema)


def most_resent(
    connection: Connection, hours: int, limit: int, *, types: Types = None, schema: str = SCHEMA
) -> list[Row]:
    """Requests whose copies came most often, of those that are open or ended since."""
    values = {"since": _ago(hours), "limit": limit, **_of(types)}
    return _rows(connection, "most_resent", values, schema)


def coalesced_groups(
    connection: Connection, hours: int, limit: int, *, types: Types = None, schema: str = SCHEMA
) -> list[Row]:
    """Requests that took the place of others: superseded_by, type, reference, n, first, last, ids.

    `ids` are the latest twenty of those others.
    """
    values = {"since": _ago(hours), "limit": limit, **_of(types)}
    return _rows(connection, "coalesced_groups", values, schema)


def superseded_by(
    connection: Connection, id: str, since: datetime, limit: int, *, schema: str = SCHEMA
) -> list[Row]:
    """Requests whose place this one took: id, created_at, finished_at."""
    values = {"id": id, "since": since, "limit": limit}
    return _rows(connection, "superseded_by_one", values, schema, seconds=0.1)


def conflicts(
    connection: Connection, limit: int, *, types: Types = None, schema: str = SCHEMA
) -> list[Row]:
    """Messages with the id of another request, each beside what is stored of that one.

    `types` are those of what is stored.
    Payloads of more than LONGEST bytes are None; `payload_bytes` and `other_payload_bytes` say how
    long they are.
    """
    values = {"limit": limit, "longest": LONGEST, **_of(types)}
    return _rows(connection, "conflicts", values, schema)


def requests_at_offsets(
    connection: Connection,
    place: tuple[str, int],
    offsets: tuple[int, int],
    hours: int,
    limit: int,
    *,
    types: Types = None,
    schema: str = SCHEMA,
) -> list[Row]:
    """Rows of messages of a topic and partition, from the first offset to before the second."""
    values: dict[str, Any] = {
        "topic": place[0], "partition": place[1], "first": offsets[0], "end": offsets[1],
        "since": _ago(hours), "limit": limit, **_of(types),
    }  # fmt: skip
    return _rows(connection, "requests_at_offsets", values, schema)


def latest_changes(
    connection: Connection, limit: int, *, types: Types = None, schema: str = SCHEMA
) -> list[Row]:
    """What operators did last, who and why, requests moved among it.

    at, what (request, schedule, limits, dead_letter), name, type, action, from_state, to_state,
    detail, who, why.
    """
    return _rows(connection, "latest_changes", {"limit": limit, **_of(types)}, schema)


def _of(types: Types) -> Row:
    return {"types": None if types is None else [pattern(one) for one in types]}


def _ago(hours: int) -> datetime:
    return datetime.now(UTC) - timedelta(hours=hours)


def _rows(
    connection: Connection, name: str, values: Row, schema: str, *, seconds: float = SECONDS
) -> list[Row]:
    with bounded(connection, seconds), connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query(name, schema), values, prepare=False).fetchall()
