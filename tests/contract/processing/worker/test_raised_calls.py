"""What becomes of a call that raised, where its type has a check: it is asked at once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from processing import App, Done, NotDone, Request, Unknown
from stack import Stack
from tests.support.executor import Bench, FakeGate, chunk_run

ANSWERS = {"done": Done("found"), "nothing": NotDone(), "fails": ValueError}
ENDS = {
    "done": ("done", "ok"), "nothing": ("failed", "handler_error"),
    "unknown": ("in_doubt", "handler_error"), "fails": ("in_doubt", "handler_error"),
}  # fmt: skip


@pytest.fixture
def entered() -> list[str]:
    return []


@pytest.fixture
def app(entered: list[str]) -> App:
    app = App()

    def check(request: Request[Any]) -> Any:
        assert request.deadline is not None
        left = request.deadline.timestamp() - time.time()
        entered.append("in time" if left > 0 else "late")
        return ANSWERS.get(request.id, Unknown())

    def call(payload: Any, request: Request[Any]) -> Any:
        request.follow_up("next", {})
        raise ValueError("half way")

    async def call_beside(payload: Any, request: Request[Any]) -> Any:
        raise ValueError("half way")

    app.handler("charge", effect="external", check=check)(call)
    app.handler("again", effect="external", check=check, retries=2)(call)
    app.handler("beside", effect="external", check=check)(call_beside)
    app.handler("next")(lambda payload: None)
    return app


@pytest.mark.parametrize("kind", ["charge", "beside"])
@pytest.mark.parametrize("name", list(ENDS))
def test_the_check_says_what_became_of_it(
    stack: Stack, schema: str, app: App, entered: list[str], name: str, kind: str
) -> None:
    bench = Bench(app, stack.database, schema)
    report = bench.run(bench.record(name, kind, {}))
    assert bench.rows() == {name: ENDS[name]}, "and what it asked for went with it"
    assert bench.state(name) == ENDS[name]
    settled = [s for s in bench.statuses if s["state"] != "running"]
    assert len(settled) == 1, "nobody is told of a doubt that is none"
    assert settled[0].get("result") == ("found" if name == "done" else None)
    assert sum(report.counts.values()) == 1
    assert entered == ["in time"]
    bench.executor.close()


def test_a_call_that_did_not_happen_has_its_next_attempt(
    stack: Stack, schema: str, app: App
) -> None:
    bench = Bench(app, stack.database, schema)
    bench.run(bench.record("nothing", "again", {}))
    assert bench.rows() == {"nothing": ("waiting", "handler_error")}
    assert bench.query(f"SELECT used, payload IS NULL FROM {schema}.requests") == [(1, False)]
    bench.executor.close()


def test_a_check_has_a_time_of_its_own_and_its_row_none(
    stack: Stack, schema: str, app: App
) -> None:
    bench, gate = Bench(app, stack.database, schema), FakeGate()
    bench.executor.run(chunk_run([bench.record("done", "charge", {})], gate=gate))
    # Read, claimed, called, asked; what comes after has no deadline.
    assert [timeout is not None for timeout in gate.timeouts][-2:] == [True, True]
    assert gate.running is None
    bench.executor.close()
