"""The time of a call is its own: whatever the server does not answer before it, or after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel, field_validator

from processing import App, Request, Unknown
from processing.ipc.frames import RenewLeases, Suspect
from processing.worker import lease_keeper
from stack import Stack
from tests.support.executor import Bench, FakeGate, bench_with_effects, chunk_run
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

WANTED = RenewLeases([("row", 1)], ["chunk"])
RENEWS = lease_keeper.BOUNDS.encode()
TIMEOUT = 7.0
LATE = 10.0
"""Seconds; of what would never come."""

During = list[Callable[[], object]]
Beside = Callable[..., Future[Any]]


class Unreadable(BaseModel):
    """Once it was read."""

    n: int

    @field_validator("n")
    @classmethod
    def _is_read_once(cls, n: int) -> int:
        if n in READ:
            raise ValueError("it was read before")
        READ.append(n)
        return n


READ: list[int] = []


@pytest.fixture
def during() -> During:
    """What the next handler does."""
    return []


@pytest.fixture
def bench(stack: Stack, through: str, proxy: Proxy, schema: str, during: During) -> Iterator[Bench]:
    """Its executor has a session, through the proxy."""
    app = App()

    @app.handler("calls", effect="external", timeout=TIMEOUT)
    def calls(payload: Any) -> None:
        during.pop()()

    @app.handler("calls.tx", effect="external", timeout=TIMEOUT)
    def calls_tx(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        during.pop()()

    def settle(request: Request) -> Unknown:
        return Unknown()

    @app.handler("asked", effect="external", timeout=TIMEOUT, check=settle)
    def asked(payload: Unreadable) -> None:
        raise OSError("cut off")

    @app.handler("computes", effect="none")
    def computes(payload: Any) -> int:
        return 1

    with bench_with_effects(app, stack.database, schema) as bench:
        bench.executor = bench.another(through, instance="here")
        bench.executor.connect()
        yield bench
        proxy.mend()


@pytest.fixture
def beside(proxy: Proxy) -> Iterator[Beside]:
    """Has something done in another thread; it ends when the test does, as the proxy is mended."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit
        proxy.mend()


def hangs_at(proxy: Proxy, statement: bytes, time: int = 1) -> threading.Event:
    """From when that was said for that time on nothing passes; set then."""
    hung = threading.Event()
    said: list[bytes] = []

    def fits(data: bytes) -> bool:
        if statement in data:
            said.append(data)
        if len(said) < time:
            return False
        proxy.hang()
        hung.set()
        return True

    proxy.wish(fits, delay=0)
    return hung


def test_a_call_that_has_returned_has_no_deadline_any_more(
    bench: Bench, proxy: Proxy, during: During, beside: Beside
) -> None:
    gate, returns = FakeGate(), threading.Event()
    hung = hangs_at(proxy, RENEWS)

    def call() -> None:
        bench.executor.leases.want(WANTED)
        assert hung.wait(LATE)
        assert (gate.running, gate.timeouts[-1]) == (0, TIMEOUT)
        returns.set()

    def look() -> bool:
        assert returns.wait(LATE)
        try:
            return eventually(lambda: gate.running is None, LATE)
        finally:
            proxy.mend()

    during.append(call)
    found = beside(look)
    bench.run_chunk(chunk_run([bench.record("x", "calls", {})], gate=gate))
    assert found.result()
    assert bench.rows()["x"] == ("done", "ok")


def test_a_call_does_not_wait_for_what_was_to_be_renewed_before_it(
    bench: Bench, proxy: Proxy, during: During, beside: Beside
) -> None:
    entered = threading.Event()
    hung = hangs_at(proxy, RENEWS)

    def look() -> bool:
        hung.wait(LATE)
        found = entered.wait(LATE)
        proxy.mend()
        return found

    during.append(entered.set)
    bench.executor.leases.want(WANTED)  # the thread of requests has the session
    found = beside(look)
    bench.run(bench.record("x", "calls", {}))
    assert hung.is_set()
    assert found.result()
    assert bench.rows()["x"] == ("done", "ok")


def test_the_time_of_a_call_begins_once_its_transaction_is_open(
    bench: Bench, proxy: Proxy, during: During, beside: Beside
) -> None:
    gate = FakeGate()
    hung = hangs_at(proxy, b"BEGIN", 2)  # the first is of the look-up

    def look() -> list[float | None]:
        assert hung.wait(LATE)
        shown = gate.timeouts[:]
        proxy.mend()
        return shown

    during.append(lambda: None)
    found = beside(look)
    bench.run_chunk(chunk_run([bench.record("x", "calls.tx", {})], gate=gate))
    assert (found.result()[-1], gate.timeouts[-1]) == (None, TIMEOUT)
    assert bench.rows()["x"] == ("done", "ok")


def test_whoever_needs_the_session_waits_for_a_moment_only(
    bench: Bench, proxy: Proxy, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "PATIENCE", 0.1)
    hung = hangs_at(proxy, RENEWS)

    def takes_a_chunk() -> None:
        with bench.executor.leases.unused():
            bench.executor.leases.want(WANTED)
            assert hung.wait(LATE)

    beside(takes_a_chunk).result(LATE)
    report = beside(bench.run, bench.record("p", "computes", {}))
    eventually(lambda: bench.state("p") == ("done", "ok"))
    proxy.mend()
    report.result()
    bench.run(bench.record("y", "computes", {}))
    assert bench.state("y") == ("done", "ok")


def test_the_end_of_a_call_whose_check_cannot_be_asked_takes_its_time(
    bench: Bench, proxy: Proxy, beside: Beside
) -> None:
    READ.clear()
    gate = FakeGate()
    call = bench.record("x", "asked", {"n": 1})
    bench.run(call)
    bench.query(f"UPDATE {bench.schema}.requests SET state = 'running'")
    suspect = Suspect("timeout", (), (f"token-{bench.number}",), 1)
    hung = hangs_at(proxy, b"BEGIN")

    def look() -> int | None:
        assert hung.wait(LATE)
        running = gate.running
        proxy.mend()
        return running

    found = beside(look)
    bench.run_chunk(chunk_run([call], 2, "t2", suspect, gate=gate))
    assert (gate.timeouts, found.result()) == ([TIMEOUT, TIMEOUT], None)
    assert bench.rows()["x"] == ("in_doubt", "timeout")
