"""Messages whose times no database takes: they fail no neighbour, and are not lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from feedback.contract.record import Record
from processing import App, Retry
from processing.ipc.frames import Suspect
from processing.worker import effect_external
from stack import Stack
from tests.support.executor import Bench
from tests.support.queue import FAR, Queue

MICROSECONDS = 1_700_000_000_000_000
"""What some producers give for milliseconds."""


def far(record: Record) -> Record:
    return (*record[:3], MICROSECONDS, *record[4:])


def test_a_dead_letter_from_the_far_future_is_kept(stack: Stack, schema: str) -> None:
    app = App()

    @app.handler("pay")
    def pay(payload: dict[str, Any]) -> None:
        """Nothing."""

    bench = Bench(app, stack.database, schema)
    good = [bench.record(f"g{n}", "pay", {}) for n in range(20)]
    bench.run(*good, far(bench.record(None, "pay", {})))
    assert bench.rows() == {f"g{n}": ("done", "ok") for n in range(20)}
    assert len(bench.letters()) == 1


def test_a_conflict_from_the_far_future_fails_no_neighbour(stack: Stack, schema: str) -> None:
    app = App()

    @app.handler("pay")
    def pay(payload: dict[str, Any]) -> None:
        """Nothing."""

    bench = Bench(app, stack.database, schema)
    bench.run(bench.record("a", "pay", {"n": 1}))
    bench.run(far(bench.record("a", "pay", {"n": 2})), bench.record("b", "pay", {}))
    assert bench.rows() == {"a": ("done", "ok"), "b": ("done", "ok")}
    assert len(bench.letters()) == 1


def test_any_time_of_a_producer_ends_in_a_row(stack: Stack, schema: str) -> None:
    app = App()

    @app.handler("reject")
    def reject(payload: dict[str, Any]) -> None:
        raise ValueError

    bench = Bench(app, stack.database, schema)
    event = {"specversion": "1.0", "id": "b", "type": "reject", "source": "x", "data": {}}
    event["time"] = event["expirytime"] = "9999-12-31T23:59:59-01:00"
    structured = {"content-type": "application/cloudevents+json"}
    bench.run(
        far(bench.record("a", "reject", {})),
        bench.record(None, None, event, **structured),
        bench.record("c", "reject", {}),
    )
    assert bench.rows() == dict.fromkeys("abc", ("failed", "handler_error"))


def test_a_timeout_of_years_keeps_no_worker_from_its_database(stack: Stack, schema: str) -> None:
    """PostgreSQL counts in milliseconds, up to 25 days."""
    app = App()

    @app.handler("slow", timeout=1e9)
    def slow(payload: dict[str, Any]) -> None:
        """Nothing."""

    bench = Bench(app, stack.database, schema)
    assert bench.run(bench.record("a", "slow", {})).database_up
    assert bench.rows() == {"a": ("done", "ok")}


@pytest.mark.parametrize("after", [1.8e12, Decimal(5)], ids=["milliseconds", "decimal"])
def test_a_pause_that_is_no_time_fails_no_neighbour(stack: Stack, schema: str, after: Any) -> None:
    """A handler gives milliseconds for seconds, or a header's number as it read it."""
    app = App()

    def answer(payload: dict[str, Any]) -> str:
        if payload["busy"]:
            raise Retry(after=after)
        return "ok"

    app.handler("tx")(answer)
    app.handler("call", effect="external")(answer)
    app.handler("pure", effect="none")(answer)
    bench = Bench(app, stack.database, schema)
    names = [f"{kind}{n}" for kind in ("tx", "call", "pure") for n in range(3)]
    report = bench.run(*[bench.record(n, n[:-1], {"busy": n.endswith("1")}) for n in names])

    assert (report.returned, report.unclear) == ([], [])
    ends = {name: "waiting" if name.endswith("1") else "done" for name in names}
    assert {name: (bench.state(name) or ("", ""))[0] for name in names} == ends
    waiting = "SELECT id FROM {}.requests WHERE state = 'waiting' AND token IS NULL ORDER BY id"
    assert bench.query(waiting.format(schema)) == [("call1",), ("pure1",), ("tx1",)]


def test_the_shortest_timeout_that_can_be_read_can_be_kept(stack: Stack, schema: str) -> None:
    """An event in structured mode is kept with headers in its attributes' place."""
    app = App()

    @app.handler("fail")
    def fail(payload: dict[str, Any]) -> None:
        raise ValueError

    @app.handler("call", effect="external")
    def call(payload: dict[str, Any]) -> None:
        """Nothing."""

    bench = Bench(app, stack.database, schema)
    event = {"specversion": "1.0", "source": "x", "data": {}, "timeout": "0.0000001"}
    structured = {"content-type": "application/cloudevents+json"}
    kinds = ("fail", "call", "unknown")
    bench.run(
        *[bench.record(None, None, {**event, "id": k, "type": k}, **structured) for k in kinds],
        bench.record("neighbour", "call", {}),
    )
    assert bench.rows() == {
        "fail": ("failed", "handler_error"), "call": ("done", "ok"), "neighbour": ("done", "ok"),
        "unknown": ("waiting", "unknown_type"),
    }  # fmt: skip


def test_a_retry_of_the_users_own_make_is_read_before_it_is_believed(
    stack: Stack, schema: str
) -> None:
    class Odd(Retry):
        @property
        def counts(self) -> bool:  # type: ignore[override]
            raise ZeroDivisionError

        def __init__(self) -> None:
            self.after, self.at, self.reason = None, None, ""

    def answer(payload: dict[str, Any]) -> None:
        if payload["odd"]:
            raise Odd

    app = App()
    app.handler("call", effect="external")(answer)
    app.handler("pure", effect="none")(answer)
    bench = Bench(app, stack.database, schema)
    names = [f"{kind}{n}" for kind in ("call", "pure") for n in range(3)]
    bench.run(*[bench.record(n, n[:-1], {"odd": n.endswith("1")}) for n in names])
    odd = {"call1": ("in_doubt", "handler_error"), "pure1": ("failed", "handler_error")}
    assert {n: bench.state(n) for n in names} == dict.fromkeys(names, ("done", "ok")) | odd


def test_a_call_of_which_nobody_can_make_a_row_fails_no_neighbour(
    stack: Stack, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours: nothing else comes to where it is looked for."""
    real = effect_external.row_of

    def row_of(task: Any, now: Any) -> Any:
        if task.envelope.id == "b":
            raise RuntimeError("a bug")
        return real(task, now)

    monkeypatch.setattr(effect_external, "row_of", row_of)
    app = App()

    @app.handler("call", effect="external")
    def call(payload: dict[str, Any]) -> None:
        """Nothing."""

    bench = Bench(app, stack.database, schema)
    bench.run(*[bench.record(name, "call", {}) for name in "abc"])
    done = ("done", "ok")
    assert bench.rows() == {"a": done, "b": ("failed", "handler_error"), "c": done}


BEYOND = ("-infinity", "0044-03-15 00:00Z BC", "10000-01-01 00:00Z", "infinity")


@pytest.mark.parametrize("time", BEYOND)
@pytest.mark.parametrize("kind", ["once", "call"])
def test_rows_with_times_beyond_all_clocks_run_like_their_neighbours(
    queue: Queue, ran: list[Any], kind: str, time: str
) -> None:
    """As SQL by hand writes them. A suspect, too: it came back at once, for ever."""
    queue.run(*(queue.record(name, kind, {}, ce_notbefore=FAR) for name in "abc"))
    (suspect,) = queue.claimed("c")
    records = queue.claimed("a", "b")
    far_away(queue, time, "produced_at", "created_at", "not_before", "window_start")
    assert queue.run(*records).returned == []
    assert queue.run(suspect, suspect=Suspect(None, (), ("x",), 1)).returned == []
    assert queue.rows() == dict.fromkeys("abc", ("done", "ok"))
    assert sorted(name for name, _ in ran) == ["a", "b", "c"]
    far_away(queue, time, "finished_at")
    queue.run(queue.record("a", kind, {}), queue.record("d", kind, {}))
    assert (queue.state("a"), queue.state("d")) == (("done", "ok"), ("done", "ok"))


@pytest.mark.parametrize("time", BEYOND)
def test_the_newest_of_a_reference_runs_beside_one_with_such_times(queue: Queue, time: str) -> None:
    """Its window has not begun later than now, and ends."""
    queue.run(queue.record("a", "count", {"sku": "s"}), queue.record("x", "count", {"sku": "t"}))
    far_away(queue, time, "created_at", "window_start", "not_before")
    queue.query(f"UPDATE {queue.schema}.coalesced SET produced_at = '{time}'")
    queue.run(queue.record("b", "count", {"sku": "s"}), queue.record("y", "count", {"sku": "u"}))
    assert queue.rows() == {
        "a": ("superseded", "superseded"), "b": ("waiting", "coalescing"),
        "x": ("waiting", "coalescing"), "y": ("waiting", "coalescing"),
    }  # fmt: skip


def far_away(queue: Queue, time: str, *columns: str) -> None:
    """Of all rows."""
    changes = ", ".join(f"{column} = '{time}'" for column in columns)
    queue.query(f"UPDATE {queue.schema}.requests SET {changes}")
