from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest

from feedback.contract.record import Record
from feedback.contract.states import State
from processing import App, Request, Retry
from processing.handlers.stopping import STOPPING
from processing.worker.calls import Calls
from processing.worker.failures import Failures
from processing.worker.reading import Limits, read_task
from processing.worker.session import Session
from processing.worker.task import Task


@pytest.fixture(autouse=True)
def _flag() -> Iterator[None]:
    STOPPING.clear()
    yield
    STOPPING.clear()


class NoSession:
    in_transaction = False

    def __init__(self) -> None:
        self.failures = Failures()

    def forget_cursor(self, kind: str) -> None: ...


def test_a_run_that_was_cancelled_ends_when_it_ended() -> None:
    """It is entered once more after its group was taken back, and must not be timed again.

    Nor is it taken back once more for a lock that it did not get when it ran.
    """
    app, session = App(), NoSession()

    @app.handler("slow")
    def slow(payload: dict[str, Any], request: Request[dict[str, Any]]) -> None:
        time.sleep(0.2)
        session.failures.note(psycopg.errors.LockNotAvailable())
        STOPPING.cancelled = "by ann"
        raise Retry(reason="told to stop")

    app.start_worker({})
    pairs: list[tuple[str, bytes | None]] = [("ce_id", b"a"), ("ce_type", b"slow")]
    record: Record = ("topic", 0, 1, 1_700_000_000_000, None, b"{}", pairs, "slow", None)
    task = read_task(app, 0, record, Limits(default_timeout=60, max_payload=100))
    assert isinstance(task, Task)
    assert task.handler is not None
    calls, before = Calls(cast("Session", session), lambda _: None), time.time()

    for _ in range(2):
        calls.one(task, cast("Any", task.handler))

    assert session.failures.last is None
    assert task.outcome is not None
    assert task.outcome.state is State.CANCELLED
    assert task.started is not None
    assert before <= task.started <= task.started + task.seconds <= time.time()
