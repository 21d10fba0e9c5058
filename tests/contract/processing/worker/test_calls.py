"""Calls that go on by themselves, between an executor on the real database and an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, NoReturn

import psycopg
import pytest

from feedback.contract.record import Record
from feedback.contract.times import moment
from feedback.journal.writer import JournalWriter
from processing import App, Done, NotDone, Reject, Request, Retry, Unknown
from processing.ipc.frames import Report
from processing.ipc.progress import ProgressSlot
from processing.worker import task
from processing.worker.open_calls import OpenCalls
from processing.worker.seated_run import SeatedRun
from stack import Stack
from tests.support.executor import Bench, FakeGate
from tests.support.waiting import eventually

WAIT = 60.0
CLAIMED = ("running", "claimed")


def asked_once_more(error: Exception | None = None) -> str:
    """Its task is to be cancelled once it waits again, as a TaskGroup of Python 3.13 asks for."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    if error is not None:
        raise error
    return "tidied"


def retried() -> NoReturn:
    raise Retry(after=100)


TOLD: dict[str, Callable[[], str]] = {
    "tidy": lambda: "tidied", "retry": retried,
    "again": asked_once_more, "again, and raises": lambda: asked_once_more(ValueError("boom")),
}  # fmt: skip
"""What a call does that is told to end, by its payload."""


class World:
    """A bench whose chunks have seats, and calls that wait for what a test says."""

    def __init__(self, url: str, schema: str) -> None:
        self.gate = threading.Event()
        self.entered: list[str] = []
        self.answers: dict[str, Any] = {}
        self.deaf: set[str] = set()
        self.bench = Bench(self.make_app(), url, schema, lease=3.0)
        self.ended: SimpleQueue[SeatedRun] = SimpleQueue()
        slot, _ = ProgressSlot.create()
        self.slot = slot
        self.calls = OpenCalls(slot.stage, self.bench.publish, self.ended.put)

    async def act(self, payload: Any, request: Request[Any]) -> Any:
        self.entered.append(request.id)
        try:
            while not self.gate.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            if payload == "deaf" and request.id not in self.deaf:
                self.deaf.add(request.id)
                await asyncio.sleep(3600)
            if (said := TOLD.get(str(payload))) is None:
                raise
            return said()
        if payload == "follow":
            request.follow_up("next", {})
        if (error := RAISED.get(str(payload))) is not None:
            raise error
        return asked_once_more() if payload == "again" else payload

    def in_thread(self, payload: str, request: Request[Any]) -> None:
        self.entered.append(request.id)
        while not (self.gate.is_set() or (payload == "polite" and request.stopping)):
            time.sleep(0.01)
        self.entered.append(f"{request.id} ended")

    async def found(self, request: Request[Any]) -> Any:
        if request.payload == ["whole"]:
            request.payload.clear()
        if self.answers[request.id] == "hangs":
            self.entered.append("check")
            await asyncio.sleep(3600)
        return self.answers[request.id]

    def plainly(self, request: Request[Any]) -> Unknown:
        self.entered.append("check")
        while not request.stopping:
            time.sleep(0.01)
        self.entered.append("check ended")
        return Unknown()

    async def tell(self, error: BaseException, request: Request[Any]) -> None:
        if request.payload == "hook hangs":
            self.entered.append("hook")
            await asyncio.sleep(3600)

    def make_app(self) -> App:
        app, act = App(), self.act

        app.on_error(self.tell)

        @app.handler("threaded", effect="external")
        async def threaded(payload: str, request: Request[Any]) -> None:
            await asyncio.to_thread(self.in_thread, payload, request)

        @app.handler("call", effect="external", check=self.found)
        async def call(payload: Any, request: Request[Any]) -> Any:
            return await act(payload, request)

        @app.handler("plain.check", effect="external", check=self.plainly)
        async def plain_check(payload: Any, request: Request[Any]) -> Any:
            return await act(payload, request)

        @app.handler("look", effect="none")
        async def look(payload: Any, request: Request[Any]) -> Any:
            return await act(payload, request)

        @app.handler("look.again", effect="none", retries=3)
        async def look_again(payload: Any, request: Request[Any]) -> Any:
            return await act(payload, request)

        @app.handler("look.once", effect="none", redelivery=False)
        async def look_once(payload: Any, request: Request[Any]) -> Any:
            return await act(payload, request)

        @app.handler("sync", effect="none")
        def sync(payload: Any, request: Request[Any]) -> None:
            self.entered.append(request.id)

        return app

    def begin(self, record: Record, recalled: bool = False) -> tuple[SeatedRun, Report | None]:
        self.bench.number += 1
        number = self.calls.at_hand = self.bench.number
        chunk = SeatedRun(number, f"token-{number}", [record], FakeGate(), self.calls)
        if recalled:
            chunk.recall()
        return chunk, self.bench.executor.begin(chunk)

    def open(self, id: str, kind: str, payload: Any = None, **headers: str) -> SeatedRun:
        """Takes a request into its handler."""
        entries = self.entered.count(id)
        chunk = self.start(id, kind, payload, **headers)
        eventually(lambda: self.entered.count(id) > entries, WAIT)
        return chunk

    def start(self, id: str, kind: str, payload: Any = None, **headers: str) -> SeatedRun:
        """Takes a request up to its call."""
        chunk, report = self.begin(self.bench.record(id, kind, payload, **headers))
        assert report is None
        assert chunk.under_way
        return chunk

    def finish(self) -> Report:
        """Takes the next call that ends to its end."""
        return self.bench.executor.resume(self.ended.get(timeout=WAIT))

    def shown(self, id: str) -> tuple[str, str] | None:
        return self.bench.rows().get(id) or self.bench.state(id)


@pytest.fixture
def world(stack: Stack, schema: str) -> Iterator[World]:
    made = World(stack.database, schema)
    yield made
    made.gate.set()
    made.bench.executor.close()
    made.bench.app.stop_worker()


RAISED = {
    "raise": ValueError("boom"), "hook hangs": ValueError("boom"),
    "reject": Reject("no_funds"), "retry": Retry(after=100),
}  # fmt: skip
FAILED = "handler_error"
ENDS = {
    "fine": (("done", "ok"), ("done", "ok"), ("done", "ok")),
    "raise": (("in_doubt", FAILED), ("failed", FAILED), ("waiting", FAILED)),
    "reject": (("rejected", "no_funds"),) * 3,
    "retry": (("waiting", "retry"),) * 3,
}  # fmt: skip


def test_ends_are_those_of_other_handlers_and_calls_are_open_together(world: World) -> None:
    kinds = ("call", "look", "look.again")
    for word in ENDS:
        for kind in kinds:
            world.open(f"{kind}-{word}", kind, word)
    world.open("follow", "call", "follow")
    # Claimed and told, and nothing has ended.
    rows = world.bench.rows()
    assert {rows[f"call-{word}"] for word in ENDS} == {CLAIMED}
    assert world.bench.state("call-fine") == ("running", "ok")
    world.gate.set()
    reports = [world.finish() for _ in range(3 * len(ENDS) + 1)]
    assert all(report.returned == report.unclear == [] for report in reports)
    assert {report.chunk for report in reports} == set(range(1, 14))
    for word, ends in ENDS.items():
        assert tuple(world.shown(f"{kind}-{word}") for kind in kinds) == ends, word
    assert len(world.entered) == len(set(world.entered)) == 13
    assert ("waiting", "follow_up") in world.bench.rows().values()
    assert sum(n for report in reports for n, _ in report.times.values()) == 13
    # A copy is answered where it stands in the journal: no call is opened.
    chunk, report = world.begin(world.bench.record("call-fine", "call", "fine"))
    assert report is not None
    assert not chunk.under_way


def test_a_deadline_a_cancellation_and_a_stop_end_one_call_each(world: World) -> None:
    world.open("late", "call", "fine", ce_timeout="0.2")
    world.open("tidy", "call", "tidy", ce_timeout="0.2")
    world.open("again", "call", "retry", ce_timeout="0.2")
    world.open("late-look", "look", "fine", ce_timeout="0.2")
    world.open("late-again", "look.again", "fine", ce_timeout="0.2")
    ann = world.open("ann", "call", "fine")
    ben = world.open("ben", "look", "fine")
    for _ in range(5):
        world.finish()
    for chunk, reason in ((ann, "ann: typo"), (ben, "ben: typo")):
        world.calls.cancel(chunk.number, reason)
        world.calls.cancel(chunk.number, "somebody else")
        world.finish()
    world.open("stopped", "call", "fine")
    world.open("stopped-look", "look", "fine")
    world.open("stopped-once", "look.once", "fine")
    world.calls.stop()
    world.calls.stop()
    for _ in range(3):
        world.finish()
    ends = {
        "late": ("in_doubt", "timeout"),
        "tidy": ("done", "ok"),
        "again": ("waiting", "retry"),
        "late-look": ("failed", "timeout"),
        "late-again": ("waiting", "timeout"),
        "ann": ("in_doubt", "cancelled"),
        "ben": ("cancelled", "cancelled"),
        "stopped": ("in_doubt", "shutdown"),
        "stopped-look": ("waiting", "parked"),
        "stopped-once": ("waiting", "parked"),
    }
    assert {name: world.shown(name) for name in ends} == ends
    # From now on no handler is entered: nothing happened, so nothing is in doubt.
    world.entered.clear()
    world.start("too-late", "call", "fine")
    world.start("late-once", "look.once", "fine")
    for _ in range(2):
        world.finish()
    parked = ("waiting", "parked")
    assert (world.shown("too-late"), world.shown("late-once")) == (parked, parked)
    assert world.entered == []
    # Whoever has the row next is told of those that must not be entered twice, and only of them.
    begun = f"SELECT id FROM {world.bench.schema}.requests WHERE lost_claims > 0"
    assert world.bench.query(begun) == [("stopped-once",)]


def test_a_call_that_ends_while_it_is_asked_once_more_to_ends_as_it_says(world: World) -> None:
    """Its task counts as cancelled then, as one does whose handler was never entered."""
    world.open("late", "call", "again", ce_timeout="0.2")
    world.open("raises", "call", "again, and raises", ce_timeout="0.2")
    world.open("look", "look.again", "again, and raises", ce_timeout="0.2")
    for _ in range(3):
        world.finish()
    cancelled = world.open("cancelled", "call", "again")
    world.calls.cancel(cancelled.number, "ann: typo")
    world.finish()
    world.open("by itself", "call", "again")
    world.gate.set()
    world.finish()
    world.gate.clear()
    world.open("stopped", "call", "again")
    world.open("stopped-raises", "call", "again, and raises")
    world.calls.stop()
    for _ in range(2):
        world.finish()
    ends = {
        "late": ("done", "ok"),
        "raises": ("in_doubt", "timeout"),
        "look": ("waiting", "timeout"),
        "cancelled": ("done", "ok"),
        "by itself": ("done", "ok"),
        "stopped": ("done", "ok"),
        "stopped-raises": ("in_doubt", "shutdown"),
    }
    assert {name: world.shown(name) for name in ends} == ends


def test_a_call_ends_when_its_threads_have_and_these_are_told(world: World) -> None:
    many = [f"call-{n}" for n in range(40)]  # more than the threads of asyncio's own executor
    for name in many:
        world.open(name, "threaded", "rude", ce_timeout="0.2")
    world.open("polite", "threaded", "polite", ce_timeout="0.2")
    world.finish()
    assert "polite ended" in world.entered
    assert world.shown("polite") == ("in_doubt", "timeout")
    assert world.ended.empty(), "what they do goes on: nobody may say yet what came of it"
    assert {world.shown(name) for name in many} == {CLAIMED}
    world.gate.set()
    for _ in many:
        world.finish()
    assert {f"{name} ended" for name in many} <= set(world.entered)
    assert {world.shown(name) for name in many} == {("in_doubt", "timeout")}


def test_a_cancellation_that_is_lost_comes_again(world: World) -> None:
    chunk = world.open("deaf", "call", "deaf")
    world.calls.cancel(chunk.number, "ann: typo")
    world.finish()
    assert world.shown("deaf") == ("in_doubt", "cancelled")


def test_what_is_awaited_for_one_request_ends_and_holds_up_no_call(world: World) -> None:
    """A check when its request is cancelled, a hook at the deadline."""
    world.open("late", "call", "fine", ce_timeout="0.1")
    world.finish()
    world.answers["late"] = "hangs"

    def cancel() -> None:
        eventually(lambda: "check" in world.entered, WAIT)
        world.calls.cancel(world.bench.number - 1, "meant for another")
        world.calls.cancel(world.bench.number, "ann: typo")

    operator = threading.Thread(target=cancel)
    operator.start()
    _, report = world.begin(world.bench.record("late", "call", "fine"))
    operator.join()
    assert report is not None
    assert world.shown("late") == ("in_doubt", "timeout")
    world.gate.set()
    world.open("hook", "look", "hook hangs", ce_timeout="0.2")
    world.finish()
    assert world.entered.count("hook") == 2, "its handler and the hook"
    assert world.shown("hook") == ("failed", "handler_error")


@pytest.mark.parametrize("end", ["its deadline", "an operator"])
def test_a_check_that_is_no_async_def_sees_that_it_is_to_end(world: World, end: str) -> None:
    """Else its worker would be killed for it, and all its open calls with it."""
    world.open("late", "plain.check", "fine", ce_timeout="0.1")
    world.finish()

    def cancel() -> None:
        eventually(lambda: "check" in world.entered, WAIT)
        world.calls.cancel(world.bench.number, "ann: typo")

    operator = threading.Thread(target=cancel)
    headers = {"ce_timeout": "0.1"} if end == "its deadline" else {}
    if end == "an operator":
        operator.start()
    _, report = world.begin(world.bench.record("late", "plain.check", "fine", **headers))
    assert report is not None
    assert world.entered[-1] == "check ended"
    assert world.shown("late") == ("in_doubt", "timeout")


def test_a_cancellation_before_the_handler_is_entered_takes_the_request_back(world: World) -> None:
    world.calls.cancel(1, "ann: typo")
    world.start("ann", "call", "fine")
    world.finish()
    assert world.shown("ann") == ("cancelled", "cancelled")
    assert world.entered == []


def test_what_is_no_call_or_was_recalled_is_not_begun(world: World) -> None:
    """A decoder may make a request of another type of a record that looked like a call."""
    _, report = world.begin(world.bench.record("sync", "sync", None))
    assert report is not None
    assert report.returned == [0]
    _, report = world.begin(world.bench.record("recalled", "look", "fine"), recalled=True)
    assert report is not None
    _, report = world.begin(world.bench.record("bad", "call", b"{"))
    assert report is not None
    assert world.shown("bad") == ("rejected", "invalid_payload")
    _, report = world.begin(world.bench.record(None, "call", b"{}"))
    assert report is not None
    assert world.bench.letters() == [("malformed", None)]
    assert world.entered == []


def test_a_check_is_asked_before_a_call_is_made_again(world: World) -> None:
    world.open("call", "call", "fine", ce_timeout="0.1")
    world.finish()
    world.answers["call"] = Done("found")
    _, report = world.begin(world.bench.record("call", "call", "fine"))
    assert report is not None
    assert world.shown("call") == ("done", "ok")
    world.open("other", "call", ["whole"], ce_timeout="0.1")
    world.finish()
    world.answers["other"] = NotDone()
    world.gate.set()
    world.open("other", "call", ["whole"])
    world.finish()
    assert world.shown("other") == ("done", "ok")
    assert world.bench.statuses[-1]["result"] == ["whole"]  # whatever its check did to its own


def test_a_connection_that_breaks_under_open_calls_loses_none_of_their_ends(world: World) -> None:
    for n in range(3):
        world.open(f"call-{n}", "call", "fine")
        world.open(f"again-{n}", "look.again", "raise")
    pid, _ = world.bench.backends[-1]
    assert world.bench.query("SELECT pg_terminate_backend(%s, 10000)", pid) == [(True,)]
    world.gate.set()
    for _ in range(6):
        assert world.finish().database_up
    assert {world.shown(f"call-{n}") for n in range(3)} == {("done", "ok")}
    assert {world.shown(f"again-{n}") for n in range(3)} == {("waiting", "handler_error")}


def test_ends_of_calls_wait_for_the_database_together_and_not_one_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a lease may hold, counted from when each has ended."""
    for n in range(5):
        world.open(f"call-{n}", "call", "fine")
    tries: list[str] = []

    def away(_rows: JournalWriter, cursor: psycopg.Cursor[Any], row: Any, _token: str) -> int:
        tries.append(row.id)
        raise psycopg.errors.QueryCanceled("the disk is slow")

    monkeypatch.setattr(JournalWriter, "finish_claim", away)
    world.gate.set()
    reports = [world.finish() for _ in range(5)]
    assert [report.database_up for report in reports] == [False] * 5
    assert all(report.returned == report.unclear == [] for report in reports)
    first = tries[0]
    # The others have waited beside the first one: each is tried once more and left to its lease.
    assert all(tries.count(f"call-{n}") == 1 for n in range(5) if f"call-{n}" != first)
    assert set(world.bench.rows().values()) == {CLAIMED}


def test_a_fault_of_ours_after_a_call_is_the_end_of_its_request_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open("call", "call", "fine")
    world.open("look", "look", "fine")

    def broken(*_: Any) -> None:
        raise AssertionError("nobody thought of it")

    with monkeypatch.context() as patched:
        patched.setattr("processing.worker.call_ends.conclude", broken)
        patched.setattr("processing.worker.effect_none.is_plain", broken)
        world.gate.set()
        for _ in range(2):
            world.finish()
    assert world.shown("call") == CLAIMED, "it is left to its lease"
    assert world.shown("look") == ("failed", "handler_error")


def test_what_expires_between_its_reading_and_its_call_is_not_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([2_000_000_000.0])
    clock = SimpleNamespace(time=lambda: next(times, 2_000_000_020.0))
    monkeypatch.setattr(task, "time", clock)
    expires = moment(2_000_000_010).isoformat()
    _, report = world.begin(world.bench.record("a", "look", {}, ce_expirytime=expires))
    assert report is not None
    assert world.bench.state("a") == ("rejected", "expired")
    assert world.entered == []
