"""Ticks of schedules become waiting rows, in the transaction that notes that they have.

Of all instances whose app declares a schedule any one does it: the schedule's row is locked, what
is due is decided from the row and from the database's clock, and the tick's id keeps it from ever
being made twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from psycopg.errors import LockNotAvailable

from feedback.contract.record import NOWHERE
from feedback.contract.schedule import (
    Decision,
    Schedule,
    StoredSchedule,
    TickRequest,
    decide,
    declaration,
    tick_of,
)
from feedback.contract.states import SCHEDULED, DeadLetterReason, State
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection, database_now, notify_due
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.queries import execute
from feedback.journal.releases import LOCK_BRIEFLY
from feedback.journal.rows import headers_json
from feedback.status.status import StatusFields

TOPIC: Final = ""
"""Of a tick's row: it came by no topic."""


class TicksMade(NamedTuple):
    """What a look at schedules brought."""

    ticks: list[TickRequest]
    """That became requests now."""
    skipped: dict[str, int]
    """Schedule -> its ticks that did not, as they were too late."""
    again_in: float | None
    """Seconds until something is due, by the database's clock; None: nobody knows of anything."""
    busy: bool = False
    """Another instance is just about one of them: what it leaves is to be looked at soon."""
    taken: Sequence[TickRequest] = ()
    """That became dead letters, as something else stands under their ids."""


def make_ticks(
    connection: Connection,
    declared: Sequence[Schedule],
    *,
    schema: str,
    watched: float = 0.0,
    commits: Commits[TicksMade] | None = None,
) -> TicksMade:
    """Makes requests of what is due. The connection is in autocommit mode.

    Most looks find that there is nothing to do, and cost one statement that locks nothing.
    `watched`: seconds for which this process has looked without a break. `commits` hears of what
    was made. Raises psycopg.Error.
    """
    since = timedelta(seconds=watched)
    mine = {schedule.name: schedule for schedule in declared}
    found = _find(connection, mine, schema)
    now = database_now(connection)
    decisions = {
        name: decide(one, found.get(name), now, watched=since) for name, one in mine.items()
    }
    wanted = {name: mine[name] for name, decision in decisions.items() if decision.writes}
    if not wanted:
        return TicksMade([], {}, _seconds(decisions, now))
    try:
        with (commits or Commits()).transaction(connection) as facts:
            connection.execute(LOCK_BRIEFLY)
            ticks, taken, done = _make(connection, wanted, now, schema, since)
            made = TicksMade(
                ticks, {name: one.skipped for name, one in done.items() if one.skipped},
                _seconds(decisions | done, now), len(done) < len(wanted), taken,
            )  # fmt: skip
            facts.append(made)
    except LockNotAvailable:  # somebody writes a request of a tick's id
        return TicksMade([], {}, _seconds(decisions, now), busy=True)
    return made


def tick_status(tick: TickRequest, now: datetime) -> StatusFields:
    """The status of a tick that has just become a request."""
    return StatusFields(
        tick.id, tick.type, State.WAITING, 0, code=SCHEDULED, attempt=1, at=now, retry_at=now
    )


def taken_letter(tick: TickRequest) -> DeadLetter:
    """Of a tick whose id belongs to another request."""
    headers = [("ce_id", tick.id.encode()), ("ce_type", tick.type.encode()), *tick.headers]
    at = int(tick.at.timestamp() * 1000)
    record = (TOPIC, NOWHERE, NOWHERE, at, None, tick.payload, headers, tick.type, None)
    error = f"request id {tick.id!r} of a schedule's tick belongs to another request"
    return DeadLetter(tick.id, DeadLetterReason.CONFLICT, error, record)


def _make(
    connection: Connection,
    wanted: Mapping[str, Schedule],
    now: datetime,
    schema: str,
    watched: timedelta,
) -> tuple[list[TickRequest], list[TickRequest], dict[str, Decision]]:
    """In the open transaction: ticks made, and taken; what was decided of those not locked."""
    _declare(connection, wanted, now, schema)
    # Whoever has one locked is just doing what is to be done about it.
    locked = _find(connection, wanted, schema, " FOR UPDATE SKIP LOCKED")
    # Who had it locked may have done it all.
    now = database_now(connection)
    done = {name: decide(wanted[name], row, now, watched=watched) for name, row in locked.items()}
    ticks: list[TickRequest] = []
    taken: list[TickRequest] = []
    for name, decision in done.items():
        due = [tick_of(wanted[name], at) for at in decision.ticks]
        made = _insert(connection, due, schema)
        lost = _refuse_taken(connection, [tick for tick in due if tick not in made], schema)
        ticks += made
        taken += lost
        if decision.writes:
            last = max((tick.at for tick in due if tick not in lost), default=None)
            _update(connection, wanted[name], decision, len(made), last, schema)
    if ticks:
        notify_due(connection, schema=schema)
    return ticks, taken, done


def _declare(
    connection: Connection, wanted: Mapping[str, Schedule], now: datetime, schema: str
) -> None:
    rows = list(wanted.values())
    values = {
        "names": [s.name for s in rows],
        "types": [s.type for s in rows],
        "crons": [s.cron for s in rows],
        "tzs": [s.tz for s in rows],
        "missed": [s.missed for s in rows],
        "decided": [now for _ in rows],
        "known": [declaration(s) for s in rows],
    }
    execute(connection, "declare_schedules", schema, values)


def _insert(connection: Connection, ticks: Sequence[TickRequest], schema: str) -> list[TickRequest]:
    """Those that no request stood for yet."""
    if not ticks:
        return []
    values = {
        "code": SCHEDULED,
        "topic": TOPIC,
        "ids": [tick.id for tick in ticks],
        "types": [tick.type for tick in ticks],
        "at": [tick.at for tick in ticks],
        "payloads": [tick.payload for tick in ticks],
        "headers": [headers_json(tick.headers).decode() for tick in ticks],
    }
    made = {request_id for (request_id,) in execute(connection, "insert_ticks", schema, values)}
    return [tick for tick in ticks if tick.id in made]


def _refuse_taken(
    connection: Connection, there: Sequence[TickRequest], schema: str
) -> list[TickRequest]:
    """Ticks whose ids are something else's become dead letters; those that were made do not."""
    if not there:
        return []
    values = {"topic": TOPIC, "ids": [tick.id for tick in there], "at": [tick.at for tick in there]}
    found = {request_id for (request_id,) in execute(connection, "find_taken_ids", schema, values)}
    taken = [tick for tick in there if tick.id in found]
    for tick in taken:
        letter = taken_letter(tick).columns()
        letter["headers"] = letter["headers"].decode()
        execute(connection, "add_tick_letter", schema, letter)
    return taken


def _update(
    connection: Connection,
    mine: Schedule,
    decision: Decision,
    made: int,
    last: datetime | None,
    schema: str,
) -> None:
    values: dict[str, Any] = {
        "name": mine.name, "type": mine.type, "cron": mine.cron, "tz": mine.tz,
        "missed": mine.missed, "decided_until": decision.decided_until,
        "declares": decision.declares, "known": declaration(mine),
        "skipped": decision.skipped, "ticks": made,
        "last_tick": last,
    }  # fmt: skip
    execute(connection, "update_schedule", schema, values)


def _find(
    connection: Connection, wanted: Mapping[str, Schedule], schema: str, lock: str = ""
) -> dict[str, StoredSchedule]:
    rows = execute(connection, "find_schedules", schema, {"names": sorted(wanted)}, lock)
    return {row[0]: StoredSchedule(*row) for row in rows}


def _seconds(decisions: Mapping[str, Decision], now: datetime) -> float | None:
    times = [one.again_at for one in decisions.values() if one.again_at is not None]
    return max(0.0, (min(times) - now).total_seconds()) if times else None
