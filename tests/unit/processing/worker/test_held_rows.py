"""Rows of the waiting queue that are held back once more, or are due by another clock."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from feedback.contract.headers import format_time
from feedback.contract.record import NOWHERE, Record, claim_token
from feedback.contract.states import DELAYED, UNKNOWN_TYPE, State
from feedback.journal.rows import HOLD_OPEN, RequestRow, StoredRequest
from processing import App
from processing.worker.dedup import sort_out
from processing.worker.reading import Limits, read_task
from processing.worker.records import row_of
from processing.worker.retry_decision import conclude
from processing.worker.task import Task

NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=16)


def claimed(app: App, kind: str, headers: list[tuple[str, bytes | None]]) -> Task:
    pairs = [("ce_id", b"a"), ("ce_type", kind.encode()), (HOLD_OPEN, b"1"), *headers]
    record: Record = ("t", NOWHERE, NOWHERE, 1_700_000_000_000, None, b"1", pairs, kind, 3)
    task = read_task(app, 0, record, Limits(default_timeout=60, max_payload=100, instance="me"))
    assert isinstance(task, Task)
    return task


def written(task: Task, code: str, lost_claims: int) -> RequestRow:
    stored = StoredRequest(
        "a", task.envelope.type, State.WAITING, code, 1, 1, 0, None, None, None, None,
        None, None, "t", 0, 7, 1, None, None, None, NOW, None, NOW, NOW, None, None, False,
    )._replace(lost_claims=lost_claims, token=claim_token("me", 3))  # fmt: skip
    sort_out([task], {"a": stored}, set(), lambda _: nullcontext())
    conclude(task, NOW, lambda: 0.5)
    return row_of(task, NOW)


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
