"""A worker renews leases while nobody uses its session, and never while somebody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from processing import App
from processing.ipc.frames import RenewLeases
from stack import Stack
from tests.support.executor import Bench, bench_with_effects
from tests.support.thread_starts import refusing
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

WANTED = RenewLeases([("row", 1)], ["chunk"])


@pytest.fixture
def during() -> list[Callable[[], object]]:
    """What handlers do."""
    return []


@pytest.fixture
def bench(
    stack: Stack, schema: str, during: list[Callable[[], object]], rows: WaitingRows
) -> Iterator[Bench]:
    app = App()

    @app.handler("calls", effect="external")
    def calls(payload: Any) -> None:
        during[0]()

    @app.handler("calls.tx", effect="external")
    def calls_tx(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        during[0]()

    @app.handler("writes")
    def writes(payload: Any) -> None:
        during[0]()

    rows.add("row", token="here:1")
    rows.add("call", state="running", type="call", effect="external", token="chunk")
    rows.query(f"UPDATE {schema}.requests SET lease_until = now()")
    with bench_with_effects(app, stack.database, schema) as bench:
        bench.executor = bench.another(stack.database, instance="here")
        yield bench


def renewed(rows: WaitingRows) -> bool:
    ahead = "lease_until > now() + interval '50 s'"
    return {rows.columns(name, ahead)[0] for name in ("row", "call")} == {True}


def test_it_does_while_it_has_nothing_to_do(bench: Bench, rows: WaitingRows) -> None:
    bench.executor.connect()
    with bench.executor.leases.unused():
        bench.executor.leases.want(WANTED)
        eventually(lambda: renewed(rows))


def test_it_does_while_a_call_outside_runs(
    bench: Bench, rows: WaitingRows, during: list[Callable[[], object]]
) -> None:
    def call() -> None:
        bench.executor.leases.want(WANTED)
        eventually(lambda: renewed(rows))

    during.append(call)
    bench.run(bench.record("x", "calls", {}))
    assert bench.rows()["x"] == ("done", "ok")


@pytest.mark.parametrize("kind", ["writes", "calls.tx"])
def test_it_does_after_a_handler_that_has_the_session(
    bench: Bench, rows: WaitingRows, during: list[Callable[[], object]], kind: str
) -> None:
    during.append(lambda: bench.executor.leases.want(WANTED))
    bench.run(bench.record("x", kind, {}))
    assert bench.rows()["x"] == ("done", "ok")
    assert not renewed(rows)
    with bench.executor.leases.unused():
        eventually(lambda: renewed(rows))


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_where_no_thread_can_be_started_it_does_so_when_one_can(
    bench: Bench, rows: WaitingRows, error: Exception
) -> None:
    bench.executor.connect()
    with refusing("leases", error), bench.executor.leases.unused():
        bench.executor.leases.want(WANTED)
    assert not renewed(rows)
    with bench.executor.leases.unused():
        eventually(lambda: renewed(rows))


def test_a_lock_or_a_lost_session_keeps_it_from_its_work_for_a_moment_only(
    bench: Bench, rows: WaitingRows, stack: Stack, during: list[Callable[[], object]]
) -> None:
    during.append(lambda: None)
    bench.executor.connect()
    with psycopg.connect(stack.database) as holder:
        holder.execute(f"LOCK TABLE {bench.schema}.requests IN SHARE MODE".encode())
        bench.executor.leases.want(WANTED)
        with bench.executor.leases.unused():
            assert not renewed(rows)
    bench.run(bench.record("x", "writes", {}))
    bench.end_session()
    bench.executor.leases.want(WANTED)
    with bench.executor.leases.unused():
        assert not renewed(rows)
    bench.run(bench.record("y", "writes", {}))
    assert {bench.rows()[name] for name in ("x", "y")} == {("done", "ok")}
