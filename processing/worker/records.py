"""How a run becomes a row, lines of the timeline, a status, a result record and follow-ups.

A task says how its run ended (`outcome`), what becomes of the request then (`final`), which start
this was (`run`) and how many starts before it died with their worker (`lost`); nothing else decides
what the journal and the producer get.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from feedback.contract.cloudevents import is_structured
from feedback.contract.envelope import JSON
from feedback.contract.headers import OURS, headers_for
from feedback.contract.lost_starts import LOST, lost_reason
from feedback.contract.record import HEADERS, Headers, may_have_begun
from feedback.contract.states import (
    DUPLICATE,
    FOLLOW_UP,
    HANDLER_ERROR,
    OK,
    WORKER_DIED,
    State,
)
from feedback.contract.times import moment
from feedback.journal.coalescing import Superseded
from feedback.journal.result_outbox import ResultRecord, add_results
from feedback.journal.rows import HOLD_OPEN, FailedRun, RequestRow, StoredRequest, headers_json
from feedback.journal.writer import JournalWriter
from feedback.status.status import StatusFields, StatusWrite
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Outcome
from processing.handlers.request import FollowUp
from processing.handlers.traceback_text import traceback_text
from processing.worker.chunk_run import ChunkRun
from processing.worker.task import LostStart, Task

_TIMELINE = frozenset({State.FAILED, State.IN_DOUBT, State.DEAD, State.CANCELLED})
"""States that a run that did not succeed ends in."""
ROWS_OF_PURE: Final = frozenset({State.WAITING, State.DEAD, State.CANCELLED})
"""States in which pure computation has a row."""


def row_of(task: Task, now: datetime) -> RequestRow:
    """Its row in the journal; `now` is the time of the end where no handler ran."""
    final, e = final_of(task), task.envelope
    keeps = final.state is not State.DONE
    waits = final.state is State.WAITING
    row = RequestRow(
        e.id, e.type, final.state, final.code, task.attempt, task.run, task.crashes,
        task.row_fingerprint, task.result, final.error, final.reason, e.key,
        task.reference or e.options.reference,
        e.payload if keeps else None,
        headers_json(_headers(task)) if keeps else None,
        e.topic, e.partition, e.offset, task.produced_at, task.effect,
        None if waits else ended_at(task, now), task.used,
    )  # fmt: skip
    row.own_fingerprint = not task.tells_fingerprint
    if keeps:
        # Also of what is dead: who retries it has to know what is newer.
        row.coalesce_key = task.reference
        row.not_before = final.due if waits else None
        row.window_start = task.window_start if waits else None
        row.superseded_by = final.superseded_by
        row.status_ttl = None if task.handler is None else task.handler.status_ttl
        row.keeps_payload = task.keeps_payload
        row.lost_claims = _lost_claims(task, final)
    return row


def _lost_claims(task: Task, final: Outcome) -> int:
    """What whoever runs it next has to know: it may have been begun, here or by who had it before.

    Many who do not know its type may have been lost with it, and it was not to blame: one is told.
    """
    if task.handler is not None:
        # Where others may have begun it the look-up has ended it: see dedup.not_again.
        return int(final.begun and not task.handler.redelivery)
    before = 0 if task.stored is None else task.stored.lost_claims
    return int(before > 0 or may_have_begun(task.record))


_TRACE: Final = ("traceparent", "tracestate")


def follow_up_row(task: Task, asked: FollowUp, now: datetime) -> RequestRow:
    """The row of a request that this one asked for; `now` is by the database's clock.

    A time of its own is one behind `now`, also where it is over: that tells it from none.
    """
    due = now if asked.due is None else max(asked.due, now + timedelta(microseconds=1))
    return RequestRow(
        asked.id, asked.type, State.WAITING, FOLLOW_UP, 1, 0, 0, None, None, None, None,
        asked.key, None, asked.payload, headers_json(_trace(task, asked)), task.envelope.topic,
        -1, -1, now, "transaction", None, not_before=due, asked_by=task.envelope.id,
    )  # fmt: skip


def _trace(task: Task, asked: FollowUp) -> Headers:
    """What a follow-up is told of the trace that asked for it: W3C trace context.

    Where tracing is off that is what has come with the request.
    """
    if asked.trace:
        return list(asked.trace)
    headers = task.envelope.headers
    return [
        (name, value.encode()) for name in _TRACE if isinstance(value := headers.get(name), str)
    ]


def attempts_of(task: Task, now: datetime) -> list[FailedRun]:
    """The lines that this end adds to the request's timeline: its lost starts, then this one."""
    outcome, name, seen = _outcome_of(task), task.envelope.id, task.losses
    lines = lost_lines(task, now)
    gone = task.started is None and len(seen) > task.lost  # this start is one of them
    if gone and outcome.state is not State.WAITING:
        lines.append(_lost_line(name, task.run, seen[-1], outcome))
    elif outcome.state in _TIMELINE:
        text = outcome.error or outcome.reason
        ended = ended_at(task, now)
        started = ended if task.started is None else datetime.fromtimestamp(task.started, UTC)
        raised = None if outcome.raised is None else traceback_text(outcome.raised)
        lines.append(FailedRun(name, task.run, outcome.code, text, started, ended, raised))
    return lines


def lost_lines(task: Task, now: datetime) -> list[FailedRun]:
    """The lines of its starts before this one that ended with their worker.

    Of one that another instance saw nobody knows the times: then both are `now`.
    """
    name, first, seen = task.envelope.id, task.run - task.lost, task.losses
    return [
        _lost_line(name, first + n, seen[n])
        if n < len(seen)
        else FailedRun(name, first + n, WORKER_DIED, LOST, now, now)
        for n in range(task.lost)
    ]


def _lost_line(name: str, run: int, lost: LostStart, outcome: Outcome | None = None) -> FailedRun:
    """A start that ended with its worker, whatever its check has found out since."""
    text = lost_reason(lost.code)
    if outcome is not None and outcome.code == lost.code:
        text = outcome.reason or text
    text = f"{text} ({lost.cause})" if lost.code == WORKER_DIED else text
    return FailedRun(name, run, lost.code, text, lost.begun, lost.ended)


def result_record(task: Task) -> ResultRecord:
    """What other systems learn of its end."""
    final, e = final_of(task), task.envelope
    return ResultRecord(e.id, e.type, final.state, final.code, task.result)


def ended_at(task: Task, now: datetime) -> datetime:
    """When its handler ended; `now` where none ran. Never later, though a clock was set back."""
    if task.started is None:
        return now
    return min(now, datetime.fromtimestamp(task.started + task.seconds, UTC))


def status_of(
    task: Task, row: RequestRow, written: datetime, *, now: datetime | None = None,
    bump: bool = False, final: bool = False,
) -> StatusWrite:  # fmt: skip
    """Its status as it ends here, or waits for its next attempt; `row` is what row_of made.

    It ended when its handler did, and waits since its row was `written`: a copy that was refused
    between the two does not say more of it. What comes of the row is later, so this is before its
    COMMIT. Where it waits it is `now` by the database's clock.
    """
    at = written if row.finished_at is None else row.finished_at
    status = row.status(at)
    if row.state is State.FAILED and not needs_row(task):
        status = status._replace(journaled=False)
    asks = task.envelope.reply_to
    return StatusWrite.of(
        status, ttl=task.status_ttl, bump=bump, reply_to=asks, final=final, now=now
    )


def needs_row(task: Task) -> bool:
    """Pure computation has a row only while it waits, is dead or was cancelled."""
    return task.effect != "none" or final_of(task).state in ROWS_OF_PURE


def failure_without_row(task: Task, now: datetime) -> StatusWrite:
    """The status of a request whose failure is in no row: sent again it runs again.

    Nothing but a row makes a request `waiting`, `dead` or refused for good. What may have happened
    stays in doubt.
    """
    e, outcome = task.envelope, _outcome_of(task)
    doubt = outcome.state is State.IN_DOUBT
    code = outcome.code if doubt or outcome.state is State.FAILED else HANDLER_ERROR
    status = StatusFields(
        e.id, e.type, State.IN_DOUBT if doubt else State.FAILED, task.run, code=code,
        attempt=task.attempt, at=now, fingerprint=task.told_fingerprint, error=outcome.error,
        reason=outcome.reason, journaled=False,
    )  # fmt: skip
    return StatusWrite.of(status, ttl=task.status_ttl, bump=not doubt, reply_to=e.reply_to)


def running_status(task: Task, now: datetime) -> StatusWrite:
    """Says that it runs."""
    e = task.envelope
    status = StatusFields(
        e.id, e.type, State.RUNNING, task.run, code=OK, attempt=task.attempt, at=now,
        fingerprint=task.told_fingerprint,
    )  # fmt: skip
    return StatusWrite.of(status, ttl=task.status_ttl, reply_to=e.reply_to)


def stored_status(
    task: Task, stored: StoredRequest, handler: Handler | None, now: datetime
) -> StatusWrite:
    """The status of the row that stands under its id; `handler` is the row's type's.

    Where that waits it lives until then by the database's clock, as the row says when.
    """
    own = handler is not None and handler.custom_fingerprint
    status = stored.status(now, tell_fingerprint=not (own or task.decoded))
    return StatusWrite.of(
        status,
        ttl=None if handler is None else handler.status_ttl,
        reply_to=task.envelope.reply_to,
        now=None if status.retry_at is None else moment(task.now()),
    )


def final_of(task: Task) -> Outcome:
    """What becomes of it."""
    return _outcome_of(task) if task.final is None else task.final


def _outcome_of(task: Task) -> Outcome:
    if task.outcome is None:
        raise AssertionError(f"request {task.envelope.id} has no outcome yet")
    return task.outcome


def _headers(task: Task) -> Headers:
    """Of its row: as a message would carry them, and whether its hold is open."""
    headers = [pair for pair in _as_of_message(task) or () if pair[0] != HOLD_OPEN]
    if not task.hold_open or final_of(task).state is State.REJECTED:  # for good: nobody reads it
        return headers
    return [*headers, (HOLD_OPEN, b"1")]


def _as_of_message(task: Task) -> Headers | None:
    """Whose value is the payload alone."""
    given, e = task.record[HEADERS], task.envelope
    if not task.decoded and not is_structured(dict(given or ()).get("content-type")):
        return given
    others = {name: value for name, value in e.headers.items() if name not in OURS}
    if e.options.content_type != JSON:
        others["content-type"] = e.options.content_type
    # When it is due stands in its row, once that is decided.
    due = e.options.not_before if task.hold_open else None
    options = e.options._replace(time=e.time, not_before=due)
    return [
        *headers_for(e.id, e.type, **options.arguments(), reply_to=e.reply_to, extra=others),
    ]


class ResultLog:
    """Result records of a chunk, written with its rows; nothing where there is no results topic."""

    def __init__(self, schema: str, *, wanted: bool, duplicates: bool) -> None:
        self._schema = schema
        self.wanted = wanted
        self._duplicates = duplicates

    def add(
        self, cursor: psycopg.Cursor[Any], ended: Sequence[Task], answered: Sequence[Task] = ()
    ) -> None:
        """Records of what has ended, and of resends that were answered where that is wanted."""
        if not self.wanted:
            return
        records = [result_record(task) for task in ended]
        if self._duplicates:
            records += [
                ResultRecord(
                    stored.id, stored.type, stored.state, DUPLICATE,
                    None if stored.result is None else stored.result.encode(),
                )
                for stored in (task.stored for task in answered)
                if stored is not None
            ]  # fmt: skip
        add_results(cursor, self._schema, records)

    def add_ousted(self, cursor: psycopg.Cursor[Any], ousted: Sequence[Superseded]) -> None:
        """Records of requests whose place a newer one took."""
        if self.wanted:
            records = [ResultRecord(row.id, row.type, row.state, row.code) for row in ousted]
            add_results(cursor, self._schema, records)


def write_follow_ups(
    rows: JournalWriter,
    cursor: psycopg.Cursor[Any],
    ended: Sequence[Task],
    now: datetime,
    written: datetime,
    chunk: ChunkRun,
) -> list[StatusWrite]:
    """Writes what requests that are done asked for; their statuses.

    It is `now` by the database's clock, and `written` by the worker's.
    """
    asked = [
        follow_up_row(task, follow_up, now)
        for task in ended
        if task.follow_ups and final_of(task).state is State.DONE
        for follow_up in task.follow_ups
    ]
    if not asked:
        return []
    new = rows.insert_missing(cursor, asked)
    for row in asked:
        chunk.wait_until(row.not_before, now)
    return [StatusWrite.of(row.status(written), now=now) for row in asked if row.id in new]
