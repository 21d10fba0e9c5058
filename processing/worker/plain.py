"""Plain ends: messages of new ids whose handler returned and asked for nothing. Nearly all are.

Their rows, statuses and counts are made of them directly, without the shapes that all other ends
need. `records` says the same of them, which a test holds against this.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from time import time

import orjson

from feedback.contract.states import OK, RANK, State
from feedback.contract.times import moment
from feedback.journal.done_rows import done_row
from feedback.status.status import StatusFields, StatusWrite
from processing.worker.calls import DONE
from processing.worker.task import Task

_SECOND = 1_000_000


def is_plain(task: Task) -> bool:
    """Whether its row says no more than that it is done. Only of requests that ran."""
    return (
        task.outcome is DONE
        and task.stored is None
        and not task.follow_ups
        and not task.losses
        and not task.lost
        and not task.deaths
        and task.envelope.options.reference is None
        and task.effect == "transaction"
    )


def plain_rows(tasks: Sequence[Task]) -> list[bytes]:
    """Their rows, sorted by id."""
    now = time()
    return [_row(task, now) for task in sorted(tasks, key=_id_of)]


def plain_statuses(tasks: Sequence[Task]) -> list[StatusWrite]:
    """Their statuses, in their order."""
    return [_status(task) for task in tasks]


def _row(task: Task, now: float) -> bytes:
    e = task.envelope
    return done_row(
        e.id, e.type, fingerprint=task.fingerprint, result=task.result, key=e.key,
        topic=e.topic, partition=e.partition, offset=e.offset,
        produced_at=_microseconds(min(e.time, now)), finished_at=_ended_at(task),
    )  # fmt: skip


def _status(task: Task) -> StatusWrite:
    e = task.envelope
    seconds, part = divmod(_ended_at(task), _SECOND)
    told, result = task.told_fingerprint, task.result
    value = b"%b%b%b%b%b%b%b}" % (
        _START,
        orjson.dumps(e.id),
        _middle(e.type),
        _second(seconds),
        b'.%06dZ"' % part if part else b'Z"',
        b"" if told is None else b',"fingerprint":"%b"' % hexlify(told),
        b"" if result is None else b',"result":%b' % result,
    )
    return StatusWrite(e.id, value, task.status_ttl, reply_to=e.reply_to, final=True)


def _ended_at(task: Task) -> int:
    """Microseconds since 1970."""
    return _microseconds((task.started or 0.0) + task.seconds)


def _microseconds(seconds: float) -> int:
    """Since 1970; what `moment` makes safe is one of few."""
    if 0 < seconds < _LAST:
        return round(seconds * _SECOND)
    return round(moment(seconds).timestamp() * _SECOND)


def _id_of(task: Task) -> str:
    return task.envelope.id


_LAST = 32_503_680_000.0  # the year 3000
_START = b'{"v":"%05d%d","id":' % (1, RANK[State.DONE])


@lru_cache(maxsize=1024)
def _middle(type: str) -> bytes:
    """What stands between id and time in all statuses of a type."""
    whole = StatusFields("", type, State.DONE, 1, code=OK, attempt=1, at=datetime.now(UTC)).encode()
    start, end = whole.index(b',"type":'), whole.index(b'"at":"') + len(b'"at":"')
    return whole[start:end]


@lru_cache(maxsize=64)
def _second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
