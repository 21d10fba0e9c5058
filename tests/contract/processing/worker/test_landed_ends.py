"""What a handler has committed itself, past the guard, and the database that fails right after."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from processing import App, Request
from processing.ipc.frames import Report
from processing.worker import outages
from stack import Stack
from tests.support.executor import Bench, FakeGate, chunk_run
from tests.support.proxy import Proxy, Wish

entered: list[str] = []


@pytest.fixture
def before_commit() -> list[Callable[[], None]]:
    """What happens before a handler commits."""
    return []


def make_app(schema: str, before_commit: list[Callable[[], None]]) -> App:
    app = App()
    entered.clear()

    @app.handler("pay")
    def pay(commits: bool, request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
        entered.append(request.id)
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])
        if commits:
            for act in before_commit:
                act()
            hidden: Any = tx
            hidden._conn.pgconn.exec_(b"COMMIT")

    return app


@pytest.fixture
def bench(
    through: str, schema: str, stack: Stack, before_commit: list[Callable[[], None]]
) -> Iterator[Bench]:
    """Its executor reaches the database through the proxy."""
    made = Bench(make_app(schema, before_commit), through, schema)
    made.url = stack.database
    made.query(f"CREATE TABLE {schema}.effects (id text)")
    yield made
    made.executor.close()
    made.app.stop_worker()


def run(bench: Bench, names: str = "abc", gate: FakeGate | None = None) -> Report:
    """The handler of `b` commits."""
    records = [bench.record(name, "pay", name == "b") for name in names]
    return bench.run_chunk(chunk_run(records, gate=gate))


def test_what_a_handler_has_committed_outlasts_an_outage(
    bench: Bench, proxy: Proxy, before_commit: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(outages, "PATIENCE", 0.1)
    gate, running = FakeGate(), []
    mending: list[threading.Thread] = []

    def mend(wish: Wish) -> None:
        assert wish.fulfilled.wait(60)
        time.sleep(0.5)
        proxy.mend()

    def go_when_it_is_asked_for() -> None:
        wish = cut_when_asked(proxy, lambda: running.append(gate.running))
        mending.append(threading.Thread(target=mend, args=(wish,)))
        mending[0].start()

    before_commit.append(go_when_it_is_asked_for)
    report = run(bench, gate=gate)
    mending[0].join()
    assert running == [None], "the deadline of what ran would kill its worker while it waits"
    ends = {"a": ("done", "ok"), "b": ("in_doubt", "transaction_ended"), "c": ("done", "ok")}
    assert (bench.rows(), {name: bench.state(name) for name in "abc"}) == (ends, ends)
    assert (bench.effects(), report.returned, report.unclear) == (["a", "b", "c"], [], [])
    assert (entered.count("a"), entered.count("b")) == (1, 1)


@pytest.mark.parametrize("fault", ["full", "gone"])
def test_what_a_handler_has_committed_is_in_doubt_where_no_row_can_say_so(
    bench: Bench, proxy: Proxy, before_commit: list[Callable[[], None]], fault: str
) -> None:
    """The disk is full from that moment on, or the server gone, for longer than anybody waits."""
    bench.executor.close()
    bench.executor = bench.another(proxy.before(bench.url), lease=0.1)
    before_commit.append(lambda: fill(bench) if fault == "full" else cut_when_asked(proxy))
    report = run(bench)
    assert (report.returned, report.unclear, report.database_up) == ([2], [], False)
    unknown = "handler_error" if fault == "full" else "transaction_ended"
    assert [bench.state(name) for name in "abc"] == [
        ("in_doubt", unknown), ("in_doubt", "transaction_ended"), None,
    ]  # fmt: skip
    assert (bench.effects(), entered[:2], bench.rows()) == (["a", "b"], ["a", "b"], {})
    doubts = [status for status in bench.statuses if status["state"] == "in_doubt"]
    assert [status.get("journaled") for status in doubts] == [False, False], "no row says so"


def test_of_what_a_handler_has_committed_only_what_no_row_takes_is_in_doubt(bench: Bench) -> None:
    bench.query(f"ALTER TABLE {bench.schema}.requests ADD CONSTRAINT few"
                " CHECK (id <> 'b' AND (id <> 'a' OR state = 'in_doubt'))")  # fmt: skip
    report = run(bench, "acdb")
    assert (report.returned, report.unclear, report.database_up) == ([], [], True)
    done = ("done", "ok")
    assert bench.rows() == {"a": ("in_doubt", "handler_error"), "c": done, "d": done}
    assert bench.state("b") == ("in_doubt", "transaction_ended")
    assert (bench.effects(), sorted(entered)) == (["a", "b", "c", "d"], ["a", "b", "c", "d"])


def cut_when_asked(proxy: Proxy, then: Callable[[], None] = lambda: None) -> Wish:
    """The database cannot be reached any more once somebody asks what was committed."""

    def fits(data: bytes) -> bool:
        if b"pg_xact_status" not in data:
            return False
        then()
        return True

    return proxy.wish(fits, cut=True)


def fill(bench: Bench) -> None:
    """A trigger says what the server would say: a real full disk needs a file system of its own."""
    bench.query(f"""
        CREATE FUNCTION {bench.schema}.full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$
    """)
    for table in ("requests", "dead_letters"):
        bench.query(f"CREATE TRIGGER full_disk BEFORE INSERT ON {bench.schema}.{table}"
                    f" FOR EACH ROW EXECUTE FUNCTION {bench.schema}.full_disk()")  # fmt: skip
