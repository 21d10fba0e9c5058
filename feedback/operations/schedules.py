"""What operators see and do of schedules.

Connections are in autocommit mode; each function is one transaction. Who changed what, and why, is
kept by it as well. Rows are dicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from psycopg.rows import dict_row

from feedback.contract.schedule import ABANDONED, tick_id, ticks_after
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.operator_changes import OperatorChange, note_changes
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row


def list_schedules(
    connection: Connection, names: Sequence[str] | None = None, *, schema: str
) -> list[Row]:
    """All of them, or those of these names, by name.

    `next_at` is when it is due next, None while it is paused or no instance is there that declares
    it (`live`); `last_id` is the request of its latest tick.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        values = {"names": None if names is None else list(names)}
        rows = cursor.execute(query("list_schedules", schema), values).fetchall()
    return [_described(row) for row in rows]


def pause_schedules(
    connection: Connection, names: Sequence[str], by: By, *, schema: str
) -> set[str]:
    """Their ticks become no requests until they are resumed; the names that there are."""
    values = {"names": list(names), "who": by.who, "why": by.why}
    return _changed(connection, "pause", values, by, schema)


def resume_schedules(
    connection: Connection, names: Sequence[str], by: By, *, schema: str
) -> set[str]:
    """Their ticks from now on become requests again; those that were paused.

    Also of one that a clock has brought to wait: its `decided_until` lay ahead of now.
    """
    return _changed(connection, "resume", {"names": list(names)}, by, schema)


def drop_schedules(
    connection: Connection, names: Sequence[str], by: By, *, schema: str
) -> set[str]:
    """Forgets those that no instance looks after any more. Their requests stay."""
    values = {"names": list(names), "abandoned": ABANDONED}
    return _changed(connection, "drop", values, by, schema)


def _changed(
    connection: Connection,
    action: Literal["pause", "resume", "drop"],
    values: dict[str, Any],
    by: By,
    schema: str,
) -> set[str]:
    with connection.transaction():
        found = connection.execute(query(f"{action}_schedules", schema), values).fetchall()
        notes = [OperatorChange("schedule", name, kind, action) for name, kind in sorted(found)]
        note_changes(connection, notes, by, schema=schema)
    return {name for name, _ in found}


def _described(row: Row) -> Row:
    now, until = row.pop("now"), row.pop("decided_until")
    live = now - row["seen_at"] < ABANDONED
    last = row["last_tick"]
    coming = live and row["paused_at"] is None
    return {
        **row,
        "last_id": None if last is None else tick_id(row["name"], last),
        "live": live,
        "next_at": _next(row["cron"], row["tz"], max(now, until)) if coming else None,
    }


def _next(cron: str, tz: str, after: datetime) -> datetime | None:
    try:
        return next(ticks_after(cron, tz, after.astimezone(UTC)), None)
    except Exception:  # noqa: BLE001 - of another version, or of a zone that is not known here
        return None
