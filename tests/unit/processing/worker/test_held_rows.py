"""Rows of the waiting queue that are held back once more, or are due by another clock."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from feedback.contract.envelope import JSON
from feedback.contract.fingerprint import fingerprint
from feedback.contract.headers import format_time
from feedback.contract.record import NOWHERE, Record, claim_token
from feedback.contract.states import DELAYED, TIMEOUT, UNKNOWN_TYPE, DeadLetterReason, State
from feedback.journal.rows import HOLD_OPEN, RequestRow, StoredRequest
from processing import App, Retry
from processing.handlers.outcomes import Outcome
from processing.worker.dedup import sort_out
from processing.worker.reading import Limits, read_task
from processing.worker.records import row_of
from processing.worker.retry_decision import conclude
from processing.worker.task import Task

NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=16)


def claimed(
    app: App, kind: str, headers: list[tuple[str, bytes | None]], payload: bytes = b"1"
) -> Task:
    """A row whose hold is open."""
    pairs = [("ce_id", b"a"), ("ce_type", kind.encode()), (HOLD_OPEN, b"1"), *headers]
    record: Record = ("t", NOWHERE, NOWHERE, 1_700_000_000_000, None, payload, pairs, kind, 3)
    task = read_task(app, 0, record, Limits(default_timeout=60, max_payload=100, instance="me"))
    assert isinstance(task, Task)
    return task


def written(
    task: Task, code: str, lost_claims: int, *, fingerprint: bytes | None = None,
    decided: bool = False,
) -> RequestRow:  # fmt: skip
    """What is written over its row."""
    stored = StoredRequest(
        "a", task.envelope.type, State.WAITING, code, 1, 1, 0, fingerprint, None, None, None,
        None, None, "t", 0, 7, 1, None, None, None, NOW, None, NOW, NOW, None, None, False,
    )._replace(lost_claims=lost_claims, token=claim_token("me", 3))  # fmt: skip
    ends = {task.index} if decided else set()
    for _ in range(2):  # its transaction is done again
        assert sort_out([task], {"a": stored}, ends, lambda _: nullcontext()).ended == [task]
    conclude(task, NOW, lambda: 0.5)
    return row_of(task, NOW)


def fail(_payload: object) -> None:
    raise Retry(after=1, reason="a service is away")


LATE = ("ce_expirytime", format_time(NOW - timedelta(seconds=5)))
READ: dict[str, tuple[dict[str, Any], list[tuple[str, bytes | None]], bytes]] = {
    "well": ({}, [], b"1"),
    "it has expired": ({}, [LATE], b"1"),
    "it is due later": ({"not_before": lambda _: LATER}, [], b"1"),
    "its producer has a later time": ({}, [("ce_notbefore", format_time(LATER))], b"1"),
    "it gives way": ({"coalesce": lambda _: "reference"}, [], b"1"),
    "its reading fails": ({"not_before": fail}, [], b"1"),
}
"""How it is read now, by its type's options, its headers and its payload."""


@pytest.mark.parametrize(
    "redelivery, lost_claims, told", [(False, 1, 1), (False, 0, 0), (True, 1, 0)]
)
def test_what_may_have_been_begun_is_so_also_where_it_is_held_back_now(
    redelivery: bool, lost_claims: int, told: int
) -> None:
    """Its function said otherwise when it was entered."""
    app = App()
    app.handler("t", redelivery=redelivery, not_before=lambda _: LATER)(lambda payload: None)
    app.start_worker({})
    row = written(claimed(app, "t", []), "parked", lost_claims)
    assert (row.state, row.code, row.not_before) == (State.WAITING, DELAYED, LATER)
    assert row.lost_claims == told


@pytest.mark.parametrize("now", READ)
@pytest.mark.parametrize("decided", [False, True])
def test_a_row_whose_payload_was_altered_keeps_its_fingerprint_however_it_is_read(
    now: str, decided: bool
) -> None:
    """By it the next claim finds it altered, too, where something else has ended this one."""
    options, headers, _ = READ[now]
    app = App()
    app.handler("t", redelivery=False, **options)(lambda payload: None)
    app.start_worker({})
    right = fingerprint("t", b"1", JSON)
    task = claimed(app, "t", headers, b"2")
    if decided:
        task.end(Outcome(State.FAILED, TIMEOUT))
    row = written(task, "handler_error", 1, fingerprint=right, decided=decided)
    assert row.fingerprint == right
    ended = (State.FAILED, TIMEOUT) if decided else (State.DEAD, DeadLetterReason.CONFLICT)
    assert (row.state, row.code) == ended


def test_what_is_due_by_the_database_s_clock_pauses_where_nobody_knows_its_type() -> None:
    """A clock of a worker that is behind sent it back at once, again and again."""
    app = App()
    app.handler("t")(lambda payload: None)
    app.start_worker({})
    ahead = format_time(NOW + timedelta(seconds=1))
    row = written(claimed(app, "nobody", [("ce_notbefore", ahead)]), "delayed", 0)
    assert (row.state, row.code) == (State.WAITING, UNKNOWN_TYPE)
    assert row.not_before is not None
    assert row.not_before > NOW + timedelta(seconds=1)
