"""Rows of the waiting queue that are held back once more, or are due by another clock."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from feedback.contract.envelope import JSON
from feedback.contract.fingerprint import fingerprint
from feedback.contract.headers import format_time
from feedback.contract.record import NOT_BEGUN, NOWHERE, READ_AGAIN, Record, claim_token
from feedback.contract.states import (
    DELAYED,
    INSTANCE_DIED,
    TIMEOUT,
    UNKNOWN_TYPE,
    DeadLetterReason,
    State,
)
from feedback.journal.rows import HOLD_OPEN, RequestRow, StoredRequest, headers_of
from processing import App, Retry
from processing.handlers.options import Effect
from processing.handlers.outcomes import Outcome
from processing.worker.dedup import not_again, sort_out
from processing.worker.reading import Limits, read_task
from processing.worker.records import row_of
from processing.worker.retry_decision import conclude
from processing.worker.task import Task

NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=16)


def read(
    app: App, kind: str, headers: list[tuple[str, bytes | None]], claim: int, payload: bytes
) -> Task:
    """A claimed row whose hold is open, or a message that is read again."""
    pairs = [("ce_id", b"a"), ("ce_type", kind.encode()), *headers]
    place = 7
    if claim >= 0:
        pairs.append((HOLD_OPEN, b"1"))
        place = NOWHERE
    record: Record = ("t", place, place, 1_700_000_000_000, None, payload, pairs, kind, claim)
    task = read_task(app, 0, record, Limits(default_timeout=60, max_payload=100, instance="me"))
    assert isinstance(task, Task)
    return task


def claimed(
    app: App, kind: str, headers: list[tuple[str, bytes | None]], payload: bytes = b"1"
) -> Task:
    return read(app, kind, headers, 3, payload)


def written(
    task: Task, code: str, lost_claims: int, *, fingerprint: bytes | None = None,
    decided: bool = False,
) -> RequestRow:  # fmt: skip
    """What is written over the row of a claim, or of a message that has none."""
    found = {}
    if task.claim is not None:
        found["a"] = StoredRequest(
            "a", task.envelope.type, State.WAITING, code, 1, 1, 0, fingerprint, None, None, None,
            None, None, "t", 0, 7, 1, None, None, None, NOW, None, NOW, NOW, None, None, False,
        )._replace(lost_claims=lost_claims, token=claim_token("me", 3))  # fmt: skip
    ends = {task.index} if decided else set()
    for _ in range(2):  # its transaction is done again
        assert sort_out([task], found, ends, lambda _: nullcontext()).ended == [task]
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
    "it is invalid": ({}, [], b"{"),
}
"""How it is read now, by its type's options, its headers and its payload."""


@pytest.mark.parametrize("claim", [3, READ_AGAIN, NOT_BEGUN])
@pytest.mark.parametrize("effect", ["transaction", "none"])
@pytest.mark.parametrize("now", READ)
def test_what_others_may_have_begun_ends_so_however_it_is_read_now(
    now: str, effect: Effect, claim: int
) -> None:
    """Whoever had it before may have read it otherwise, and entered its handler."""
    options, headers, payload = READ[now]
    if effect == "none" and "coalesce" in options:
        pytest.skip("pure computation does not coalesce")
    app = App()
    app.handler("t", redelivery=False, effect=effect, **options)(lambda payload: None)
    app.start_worker({})
    task = read(app, "t", headers, claim, payload)
    if claim == NOT_BEGUN and effect == "transaction":
        assert not_again(task) is None
        return
    row = written(task, "parked", 1)
    assert (row.state, row.code, row.lost_claims) == (State.FAILED, INSTANCE_DIED, 0)
    opened = HOLD_OPEN in dict(headers_of((row.headers or b"[]").decode()))
    assert opened == (now != "well"), "an operator's retry has it held back as at first"


@pytest.mark.parametrize("redelivery, lost_claims", [(False, 0), (True, 1)])
def test_what_nobody_has_begun_or_may_be_entered_again_is_held_back(
    redelivery: bool, lost_claims: int
) -> None:
    app = App()
    app.handler("t", redelivery=redelivery, not_before=lambda _: LATER)(lambda payload: None)
    app.start_worker({})
    row = written(claimed(app, "t", []), "parked", lost_claims)
    assert (row.state, row.code, row.not_before) == (State.WAITING, DELAYED, LATER)
    assert row.lost_claims == 0


@pytest.mark.parametrize("now", [name for name in READ if name != "it is invalid"])
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
