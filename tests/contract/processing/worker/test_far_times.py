"""Messages whose times no database takes: they fail no neighbour, and are not lost."""

from __future__ import annotations

from typing import Any

from feedback.contract.record import Record
from processing import App
from stack import Stack
from tests.support.executor import Bench

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
