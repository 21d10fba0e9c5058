"""Spans of what a worker runs, fails, does again and writes, on real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from feedback.journal.rows import headers_of
from processing import App, Reject, Request, Retry
from processing.worker.traced_runs import TracedRuns
from stack import Stack
from tests.support.executor import Bench
from tests.support.spans import header_of, recorded, told

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{}-01"
TRACE = THEIRS.split("-")[1]
ENDS = {"reject": Reject("no_funds"), "retry": Retry(after=9), "raise": ValueError("boom")}


def make_app(bound: list[Any]) -> App:
    app = App()

    def note() -> None:
        bound.append(structlog.contextvars.get_contextvars().get("trace_id"))

    @app.handler("step")
    def step(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note()
        with trace.get_tracer("shop").start_as_current_span(f"inside {request.id}"):
            request.follow_up("next", {}, request_id=f"{request.id}-next")
        if payload in ENDS:
            raise ENDS[payload]

    @app.handler("call", effect="external")
    def call(payload: Any) -> None:
        note()
        if payload in ENDS:
            raise ENDS[payload]

    @app.batch_handler("many")
    def many(requests: list[Request[Any]]) -> list[Any]:
        return [ENDS.get(request.payload) for request in requests]

    return app


class Traced:
    def __init__(self, bench: Bench, kept: InMemorySpanExporter, bound: list[Any]) -> None:
        self.bench = bench
        self.bound = bound
        """Trace ids that log lines of handlers have."""
        self._kept = kept

    def run(self, *asked: tuple[str, str, Any]) -> list[dict[str, Any]]:
        """Runs requests (id, type, payload), each of a trace; the spans of that."""
        self._kept.clear()
        records = [
            self.bench.record(name, kind, payload, traceparent=THEIRS.format(n))
            for n, (name, kind, payload) in enumerate(asked)
        ]
        self.bench.run(*records)
        return [told(span) for span in self._kept.get_finished_spans()]


@pytest.fixture
def world(stack: Stack, schema: str) -> Iterator[Traced]:
    bound: list[Any] = []
    with recorded() as (switch, kept):
        spans = switch.spans()
        assert spans is not None
        bench = Bench(make_app(bound), stack.database, schema, runs=TracedRuns(spans, "group"))
        yield Traced(bench, kept, bound)
        bench.executor.close()
        bench.app.stop_worker()


def of(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [span for span in spans if span["attributes"].get("messaging.message.id") == name]


def test_a_handler_runs_in_a_span_of_its_requests_trace(world: Traced) -> None:
    spans = world.run(("a", "step", "well"), ("b", "step", "well"))
    (a,), (b,) = of(spans, "a"), of(spans, "b")
    assert [span["name"] for span in (a, b)] == ["process topic"] * 2
    assert (a["parent"], b["parent"]) == ("b7ad6b7169203330", "b7ad6b7169203331")
    assert {a["trace"], b["trace"]} == {TRACE}
    inside = next(span for span in spans if span["name"] == "inside a")
    assert inside["parent"] == a["id"]
    (settle,) = [span for span in spans if span["name"] == "settle topic"]
    assert (settle["kind"], settle["parent"]) == ("CLIENT", None)
    assert settle["links"] == [a["id"], b["id"]]
    assert settle["attributes"]["messaging.batch.message_count"] == 2

    query = f"SELECT headers::text FROM {world.bench.schema}.requests WHERE id = 'a-next'"
    ((stored,),) = world.bench.query(query)
    assert headers_of(stored) == [("traceparent", header_of(inside))]


def test_what_fails_says_so_and_each_run_again_has_a_span(
    world: Traced, capsys: pytest.CaptureFixture[str]
) -> None:
    spans = world.run(
        ("a", "step", "well"), ("b", "step", "raise"), ("c", "step", "reject"),
        ("d", "step", "retry"), ("e", "call", "raise"),
    )  # fmt: skip
    runs = of(spans, "b")
    assert len(runs) == 2, "the segment was undone, and each of it was run by itself"
    for span in runs:
        assert (span["status"], span["attributes"]["error.type"]) == ("ERROR", "ValueError")
        assert (span["attributes"]["oncepool.state"], span["events"]) == ("failed", ["exception"])
        assert (span["parent"], span["links"]) == ("b7ad6b7169203331", ["b7ad6b7169203331"])
    ends = {name: of(spans, name)[-1] for name in "acde"}
    assert {span["status"] for name, span in ends.items() if name != "e"} == {"UNSET"}
    said = {name: span["attributes"]["oncepool.code"] for name, span in ends.items()}
    assert said == {"a": "ok", "c": "no_funds", "d": "retry", "e": "handler_error"}
    assert ends["e"]["attributes"]["oncepool.state"] == "in_doubt"
    settled = [span for span in spans if span["name"] == "settle topic"]
    assert settled[-1]["parent"] == ends["e"]["id"], "a call outside is settled by itself"
    assert len(world.run(("a", "step", "well"))) == 0, "a resend is answered, and runs nothing"


def test_a_batch_is_one_span_with_links(world: Traced) -> None:
    spans = world.run(("a", "many", ""), ("b", "many", "raise"), ("c", "many", "reject"))
    run, settle = spans
    assert (run["name"], run["kind"], run["parent"]) == ("process topic", "CONSUMER", None)
    assert run["links"] == [f"b7ad6b716920333{n}" for n in range(3)]
    assert run["attributes"]["messaging.batch.message_count"] == 3
    assert (run["status"], run["attributes"]["oncepool.failed_count"]) == ("ERROR", 1)
    assert "messaging.message.id" not in run["attributes"]
    assert (settle["name"], settle["parent"]) == ("settle topic", run["id"])


def test_log_lines_of_a_run_have_its_trace(world: Traced) -> None:
    world.run(("a", "step", "well"), ("b", "call", ""))
    assert world.bound == [TRACE, TRACE]


def test_a_fault_in_the_making_of_spans_is_no_request_s(
    world: Traced, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("processing.worker.traced_runs._topic", broken)
    assert world.run(("a", "step", "well"), ("b", "many", ""), ("c", "call", ""))
    states = {name: state for name, (state, _) in world.bench.rows().items()}
    assert {name: states[name] for name in "abc"} == dict.fromkeys("abc", "done")
