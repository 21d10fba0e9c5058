"""Plain ends: messages of new ids whose handler returned and asked for nothing. Nearly all are.

Their rows, statuses and counts are made of them directly, without the shapes that all other ends
need. `records` says the same of them, which a test holds against this.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time

from feedback.contract.times import microseconds
from feedback.journal.done_rows import done_row
from feedback.status.status import StatusWrite
from processing.worker.calls import DONE
from processing.worker.task import Task


def is_plain(task: Task) -> bool:
    """Whether there is no more to say than that it is done. Only of requests that ran."""
    return (
        task.outcome is DONE
        and task.stored is None
        and not task.follow_ups
        and not task.losses
        and not task.lost
        and not task.deaths
        and task.envelope.options.reference is None
        and task.effect != "external"
    )


def plain_rows(tasks: Sequence[Task]) -> list[bytes]:
    """Their rows, sorted by id."""
    now = time()
    return [_row(task, now) for task in sorted(tasks, key=_id_of)]


def plain_statuses(tasks: Sequence[Task], *, rows: bool = True) -> list[StatusWrite]:
    """Their statuses, in their order; `rows`: they have rows, which say it for good."""
    return [_status(task, final=rows) for task in tasks]


def _row(task: Task, now: float) -> bytes:
    e = task.envelope
    return done_row(
        e.id, e.type, fingerprint=task.fingerprint, own_fingerprint=not task.tells_fingerprint,
        result=task.result, key=e.key, topic=e.topic, partition=e.partition, offset=e.offset,
        produced_at=microseconds(min(e.time, now)), finished_at=_ended_at(task),
    )  # fmt: skip


def _status(task: Task, *, final: bool) -> StatusWrite:
    e = task.envelope
    fingerprint = task.fingerprint if task.tells_fingerprint else None  # its own: none is stored
    return StatusWrite.of_done(
        e.id, e.type, at=_ended_at(task), fingerprint=fingerprint, result=task.result,
        ttl=task.status_ttl, reply_to=e.reply_to, final=final,
    )  # fmt: skip


def _ended_at(task: Task) -> int:
    """Microseconds since 1970."""
    return microseconds((task.started or 0.0) + task.seconds)


def _id_of(task: Task) -> str:
    return task.envelope.id
