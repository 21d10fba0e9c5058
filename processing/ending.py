"""How a run becomes a row, lines of the timeline and a status. Pure.

A task says how it ended (`outcome`), which start this was (`run`) and how many starts before it
died with their worker (`lost`); nothing else decides what the journal and the producer get.
"""

from __future__ import annotations

from datetime import UTC, datetime

from feedback.record import TIMESTAMP
from feedback.rows import Attempt, Row, Stored, headers_json
from feedback.states import OK, WORKER_DIED, State
from feedback.status import encode_status
from feedback.store import StatusWrite
from processing.handler import Handler
from processing.outcomes import Outcome
from processing.task import DEFAULT_TTL, Task

LOST = "its worker died while it ran"
_TIMELINE = frozenset({State.FAILED, State.IN_DOUBT, State.DEAD})
"""States that a run that did not succeed ends in."""


def row_of(task: Task, now: datetime) -> Row:
    """Its row in the journal; `now` is the time of the end where no handler ran."""
    outcome, e = _outcome_of(task), task.envelope
    keeps = outcome.state is not State.DONE
    return Row(
        e.id, e.type, outcome.state, outcome.code, 1, task.run, task.crashes, task.fingerprint,
        task.result, outcome.error, outcome.reason, e.key, e.reference,
        e.payload if keeps else None,
        headers_json(task.record[6]) if keeps else None,
        e.topic, e.partition, e.offset,
        datetime.fromtimestamp(max(0, task.record[TIMESTAMP]) / 1000, UTC), task.effect,
        ended_at(task, now),
    )  # fmt: skip


def attempts_of(task: Task, now: datetime) -> list[Attempt]:
    """The lines that this end adds to the request's timeline: its lost starts, then this one.

    When a lost start began and ended nobody has noted, so both its times are `now`.
    """
    outcome, name = _outcome_of(task), task.envelope.id
    lines = [
        Attempt(name, run, WORKER_DIED, LOST, now, now)
        for run in range(task.run - task.lost, task.run)
    ]
    if outcome.state in _TIMELINE:
        text = outcome.error or outcome.reason
        ended = ended_at(task, now)
        started = ended if task.started is None else datetime.fromtimestamp(task.started, UTC)
        lines.append(Attempt(name, task.run, outcome.code, text, started, ended))
    return lines


def ended_at(task: Task, now: datetime) -> datetime:
    """When its handler ended; `now` where none ran."""
    if task.started is None:
        return now
    return datetime.fromtimestamp(task.started + task.seconds, UTC)


def status_of(task: Task, now: datetime, *, bump: bool = False) -> StatusWrite:
    """Its status as it ends here."""
    outcome, e = _outcome_of(task), task.envelope
    value = encode_status(
        e.id, e.type, outcome.state, task.run, code=outcome.code, attempt=1,
        at=ended_at(task, now), fingerprint=task.told_fingerprint, result=task.result,
        error=outcome.error, reason=outcome.reason,
    )  # fmt: skip
    return StatusWrite(e.id, value, task.status_ttl, bump, e.reply_to)


def running_status(task: Task, now: datetime) -> StatusWrite:
    """Says that it runs."""
    e = task.envelope
    value = encode_status(
        e.id, e.type, State.RUNNING, task.run, code=OK, attempt=1, at=now,
        fingerprint=task.told_fingerprint,
    )  # fmt: skip
    return StatusWrite(e.id, value, task.status_ttl, reply_to=e.reply_to)


def stored_status(
    task: Task, stored: Stored, handler: Handler | None, now: datetime
) -> StatusWrite:
    """The status of the row that stands under its id; `handler` is the row's type's."""
    tells = handler is None or not handler.custom_fingerprint
    ttl = DEFAULT_TTL if handler is None else handler.status_ttl
    value = encode_status(
        stored.id, stored.type, State(stored.state), stored.run, code=stored.code,
        attempt=stored.attempt, at=now,
        fingerprint=stored.fingerprint if tells else None,
        result=None if stored.result is None else stored.result.encode(),
        error=stored.error, reason=stored.reason, superseded_by=stored.superseded_by,
    )  # fmt: skip
    return StatusWrite(stored.id, value, ttl, reply_to=task.envelope.reply_to)


def _outcome_of(task: Task) -> Outcome:
    if task.outcome is None:
        raise AssertionError(f"request {task.envelope.id} has no outcome yet")
    return task.outcome
