"""One trace from a producer through Kafka, workers and the journal, as exporters get it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from opentelemetry import trace

from feedback import Client
from tests.support.service import WAIT, Bench
from tests.support.spans import FILE, SpanFile, install, recorded, told


def test_a_request_and_its_follow_up_are_one_trace(bench: Bench, tmp_path: Path) -> None:
    install(tmp_path, file=SpanFile)
    file = tmp_path / "spans"
    instance = bench.start(
        ONCEPOOL_APP="tests.support.traced_app:app",
        ONCEPOOL_WORKERS="1",
        ONCEPOOL_TRACING="on",
        OTEL_TRACES_EXPORTER="file",
        OTEL_BSP_SCHEDULE_DELAY="3600000",  # all that is seen is what the worker's end flushes
        PYTHONPATH=str(tmp_path),
        **{FILE: str(file)},
    )
    kafka, redis = bench.stack.kafka, bench.stack.redis
    prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
    with recorded() as (_, kept):
        with Client(kafka, redis, bench.topic, prefix=prefix) as client:
            with trace.get_tracer("shop").start_as_current_span("checkout"):
                request = client.submit("order", {}, key="k")
            bill = client.wait(request, WAIT).result
            assert client.wait(bill, WAIT).state == "done"
        produced = [told(span) for span in kept.get_finished_spans()]
    assert instance.stop() == 0, instance.log

    ran = [json.loads(line) for line in file.read_text().splitlines()]
    assert {span["pid"] for span in ran}.isdisjoint({os.getpid(), instance.process.pid})
    assert len({span["trace"] for span in produced + ran}) == 1
    spans = {span["id"]: span for span in produced + ran}

    def parent(span: dict[str, str]) -> str | None:
        return spans[span["parent"]]["name"] if span["parent"] else None

    topic = bench.topic
    produced.sort(key=lambda span: str(span["name"]))  # whichever ended first
    first, then = [span for span in ran if span["name"] == f"process {topic}"]
    assert [(span["name"], parent(span)) for span in produced + ran] == [
        ("checkout", None), (f"send {topic}", "checkout"),
        ("reserve", f"process {topic}"), (f"process {topic}", f"send {topic}"),
        (f"settle {topic}", f"process {topic}"),
        ("charge", f"process {topic}"), (f"process {topic}", "reserve"),
        (f"settle {topic}", f"process {topic}"),
    ]  # fmt: skip
    assert first["kind"] == "CONSUMER"
    assert first["links"] == [first["parent"]]
    assert first["attributes"] == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "k",
        "messaging.consumer.group.name": bench.group,
        "messaging.message.id": request,
        "oncepool.request.type": "order",
        "oncepool.request.attempt": 1,
        "oncepool.state": "done",
        "oncepool.code": "ok",
    }
    assert then["attributes"]["messaging.message.id"] == bill
    assert "messaging.kafka.offset" not in then["attributes"], "no message asked for it"
