"""Calls in an event loop, between a main thread and the looks of the main process."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from feedback.contract.record import Record
from processing import App, Retry
from processing.handlers.event_loop import LOOP
from processing.handlers.outcomes import Outcome
from processing.ipc.progress import ProgressSlot
from processing.worker.inbox import Inbox, _Seat
from processing.worker.open_calls import OpenCalls
from processing.worker.reading import Limits, read_task
from processing.worker.seated_run import LOOP_PATIENCE, SeatedRun
from processing.worker.task import Task
from tests.support.waiting import eventually

SHARED = OSError("away")
"""What each of many calls raises."""


class Bench:
    """Calls of one handler, each in a seat of its own."""

    def __init__(self) -> None:
        self.app = App()
        self.entered = threading.Event()
        self.app.handler("call", effect="external", timeout=0.5)(self.call)
        self.app.handler("slow", effect="none", timeout=60)(self.call)
        self.app.handler("shared", effect="none", timeout=60)(self.fail)
        self.app.start_worker({})
        self.slot, _ = ProgressSlot.create()
        self.ended: SimpleQueue[SeatedRun] = SimpleQueue()
        self.calls = OpenCalls(self.slot.stage, lambda _: None, self.ended.put)
        self._inbox = cast("Inbox", SimpleNamespace(lock=threading.Lock()))

    async def call(self, payload: Any) -> None:
        self.entered.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise Retry(after=100) from None

    async def fail(self, payload: Any) -> None:
        raise SHARED

    def open(self, number: int, kind: str) -> None:
        pairs: list[tuple[str, bytes | None]] = [("ce_id", b"a"), ("ce_type", kind.encode())]
        record: Record = ("topic", 0, 1, 1_700_000_000_000, None, b"{}", pairs, kind, None)
        task = read_task(self.app, 0, record, Limits(default_timeout=60, max_payload=100))
        assert isinstance(task, Task)
        assert task.handler is not None
        seat = _Seat(self._inbox, self.slot.seat(number))
        chunk = SeatedRun(number, "token", [record], seat, self.calls)
        assert chunk.start(0, None)
        assert chunk.call_beside(task, task.handler)

    def end(self) -> Outcome:
        call = self.ended.get(timeout=60).call
        assert call is not None
        assert call.outcome is not None
        return call.outcome


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """The event loop stands still until this is set."""
    gone_on, stands = threading.Event(), threading.Event()

    def block() -> None:
        stands.set()
        gone_on.wait()

    LOOP.loop.call_soon_threadsafe(block)
    assert stands.wait(60)
    yield gone_on
    gone_on.set()


@pytest.mark.parametrize("kind", ["call", "slow"])
def test_a_call_that_was_cancelled_is_not_to_run_again_though_it_says_so(
    bench: Bench, kind: str
) -> None:
    bench.open(1, kind)
    assert bench.entered.wait(60)
    bench.calls.cancel(1, "ann: typo")
    end = bench.end()
    assert (end.state, end.code, end.reason) == ("cancelled", "cancelled", "ann: typo")


def test_one_that_its_deadline_met_is(bench: Bench) -> None:
    bench.open(1, "call")
    end = bench.end()
    assert end.retry is not None
    assert end.code == "retry"


@pytest.mark.parametrize("kind, patience", [("call", LOOP_PATIENCE), ("slow", 60)])
def test_the_loop_has_a_deadline_to_turn_to_a_call_and_then_the_call_has_its_own(
    bench: Bench, blocked: threading.Event, kind: str, patience: float
) -> None:
    bench.open(1, kind)
    waits = bench.slot.seat(1).read()
    assert waits is not None
    assert waits.deadline is not None
    assert (waits.index, waits.deadline - waits.started) == (None, pytest.approx(patience))
    blocked.set()
    begun = eventually(
        lambda: (seen := bench.slot.seat(1).read()) is not None and seen != waits and seen
    )
    assert begun
    assert begun.deadline is not None
    assert begun.index == 0
    timeout = 0.5 if kind == "call" else 60
    assert begun.deadline - begun.started == pytest.approx(timeout)
    bench.calls.cancel(1, "ann: over")
    bench.end()


def test_an_exception_that_many_raise_keeps_nothing_of_their_calls(bench: Bench) -> None:
    seen = []
    for _ in range(3):
        bench.open(1, "shared")
        end = bench.end()
        assert SHARED.__traceback__ is None
        assert end.cause is SHARED
        assert end.raised is not None
        with end.raised.shown():
            seen.append(len(traceback.extract_tb(SHARED.__traceback__)))
        assert SHARED.__traceback__ is None
    assert seen[0] > 0
    assert len(set(seen)) == 1
