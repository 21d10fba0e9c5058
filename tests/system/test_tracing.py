"""Traces from producers, an HTTP caller and an outbox through Kafka, workers and the journal.

As an exporter gets them that each program has.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry import trace

from feedback import Client, outbox
from feedback.outbox.migrations import migrate
from feedback.outbox.names import DEFAULT_SCHEMA
from tests.support.gateway_process import GatewayProcess
from tests.support.outbox import Outbox
from tests.support.own_database import OwnDatabase
from tests.support.relay_process import RelayProcess
from tests.support.service import WAIT, Bench
from tests.support.spans import FILE, SpanFile, install, recorded, told
from tests.support.waiting import eventually

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""The `traceparent` of a caller over HTTP."""


class Shop:
    """Who asks for orders, each in a way of its own; answers the trace of what asked."""

    def __init__(self, bench: Bench, url: str) -> None:
        """`url` is that of the database with the outbox."""
        self._tracer = trace.get_tracer("shop")
        self._outbox = Outbox(url, DEFAULT_SCHEMA)
        prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
        self._client = Client(bench.stack.kafka, bench.stack.redis, bench.topic, prefix=prefix)

    def submit(self) -> str:
        """By a client."""
        with self._span("checkout") as asked:
            request = self._client.submit("order", {}, request_id="by-client", key="k")
        self._billed(self._client.wait(request, WAIT).result)
        return asked

    def post(self, gateway: GatewayProcess) -> str:
        """Over HTTP, in a trace that began elsewhere."""
        answer = gateway.post("order", {}, "by-http", prefer="wait=50", traceparent=THEIRS)
        assert answer.status_code == 200, answer.text
        self._billed(answer.json()["result"])
        return THEIRS.split("-")[1]

    def add(self) -> str:
        """Through the outbox."""
        with self._outbox.connection.transaction(), self._span("accept") as asked:
            request = outbox.add(self._outbox.connection, "order", {}, request_id="by-outbox")
        self._billed(self._client.wait(request, WAIT).result)
        return asked

    def add_views(self) -> list[str]:
        """Several for a batch, each of a trace of its own; waits until they are sent."""
        found = []
        with self._outbox.connection.transaction():
            for n in range(3):
                with self._span("look") as asked:
                    outbox.add(self._outbox.connection, "count", {}, request_id=f"view-{n}")
                found.append(asked)
        unsent = "SELECT FROM :schema.requests WHERE state <> 'sent'"
        eventually(lambda: not self._outbox.rows(unsent), WAIT)
        return found

    def close(self) -> None:
        self._client.close()
        self._outbox.connection.close()

    def _billed(self, bill: str) -> None:
        assert self._client.wait(bill, WAIT).state == "done"

    @contextmanager
    def _span(self, name: str) -> Iterator[str]:
        with self._tracer.start_as_current_span(name) as span:
            yield trace.format_trace_id(span.get_span_context().trace_id)


class Seen:
    """The spans of all programs."""

    def __init__(self, spans: list[dict[str, Any]]) -> None:
        self.spans = spans
        self._by_id = {span["id"]: span for span in spans}
        assert len(self._by_id) == len(spans), "a span was exported twice"

    def of(self, trace_id: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["trace"] == trace_id]

    def way(self, span: dict[str, Any]) -> list[tuple[str, int]]:
        """Names, and processes, from a span to the first one of its trace that is known."""
        parent = self._by_id.get(span["parent"])
        assert parent is None or parent["trace"] == span["trace"]
        return [(span["name"], span["pid"]), *(self.way(parent) if parent else [])]


@pytest.mark.long  # test_traced_runs.py has each part of it
def test_a_trace_goes_from_whoever_asks_to_the_last_follow_up(
    bench: Bench, own_database: OwnDatabase, tmp_path: Path
) -> None:
    install(tmp_path, file=SpanFile)
    file = tmp_path / "spans"
    bench.environment |= {
        "ONCEPOOL_APP": "tests.support.traced_app:app",
        "ONCEPOOL_WORKERS": "1",
        "ONCEPOOL_TRACING": "on",
        "ONCEPOOL_OUTBOX_DATABASE_URL": own_database.url,
        "OTEL_TRACES_EXPORTER": "file",
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",  # they flush at their end
        "PYTHONPATH": str(tmp_path),
        FILE: str(file),
    }
    with psycopg.connect(own_database.url) as connection:
        migrate(connection, DEFAULT_SCHEMA, [])
    sending = bench.environment | {"ONCEPOOL_KAFKA_TOPIC": bench.topic}
    with (
        recorded() as (_, kept),
        GatewayProcess(bench.environment, tmp_path / "gateway.log") as gateway,
        RelayProcess(sending, tmp_path / "relay.log") as relay,
    ):
        shop = Shop(bench, own_database.url)
        views = shop.add_views()  # before the consumer is there: it finds them together
        instance = bench.start()
        (worker,) = instance.workers()
        orders = {"client": shop.submit(), "http": shop.post(gateway), "outbox": shop.add()}
        shop.close()
        for program in (instance, gateway, relay):
            assert program.stop() == 0, program.log
        ours = [told(span) for span in kept.get_finished_spans()]
    seen = Seen(ours + [json.loads(line) for line in file.read_text().splitlines()])
    pids = {"worker": worker, "gateway": gateway.process.pid, "relay": relay.process.pid}
    _check_orders(seen, orders, bench.topic, pids)
    reserved = [line for line in instance.log.splitlines() if "reserved" in line]
    for trace_id in orders.values():
        assert any(f"trace_id={trace_id}" in line for line in reserved), instance.log
    _check_attributes(seen, orders["client"], bench)
    _check_views(seen, views)


def _check_orders(seen: Seen, orders: dict[str, str], topic: str, pids: dict[str, int]) -> None:
    """One trace each, from the follow-up back to who asked for the order."""
    send, process, settle = (f"{what} {topic}" for what in ("send", "process", "settle"))
    before = {
        "client": [(send, os.getpid()), ("checkout", os.getpid())],
        "http": [(send, pids["gateway"])],
        "outbox": [(send, pids["relay"]), ("accept", os.getpid())],
    }
    worker = pids["worker"]
    inside = [("charge", worker), (process, worker), ("reserve", worker), (process, worker)]
    for way, trace_id in orders.items():
        found = seen.of(trace_id)
        names = [name for name, _ in [*inside, *before[way]]]
        assert Counter(s["name"] for s in found) == Counter([*names, settle, settle]), way
        (charge,) = [span for span in found if span["name"] == "charge"]
        assert seen.way(charge) == [*inside, *before[way]], way
        runs = {span["id"] for span in found if span["name"] == process}
        assert {span["parent"] for span in found if span["name"] == settle} == runs
        (sent,) = [span for span in found if span["name"] == send]
        (first,) = [span for span in found if span["parent"] == sent["id"]]
        assert (first["kind"], first["links"]) == ("CONSUMER", [sent["id"]])
    (posted,) = [span for span in seen.of(orders["http"]) if span["name"] == send]
    assert posted["parent"] == THEIRS.split("-")[2]


def _check_attributes(seen: Seen, trace_id: str, bench: Bench) -> None:
    """Of the runs of an order and of its follow-up."""
    runs = {
        span["attributes"]["oncepool.request.type"]: span
        for span in seen.of(trace_id)
        if span["kind"] == "CONSUMER"
    }
    found = runs["order"]["attributes"]
    assert found.pop("messaging.kafka.offset") >= 0
    assert found == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": bench.topic,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "k",
        "messaging.consumer.group.name": bench.group,
        "messaging.message.id": "by-client",
        "oncepool.request.type": "order",
        "oncepool.request.attempt": 1,
        "oncepool.state": "done",
        "oncepool.code": "ok",
    }
    assert "messaging.kafka.offset" not in runs["bill"]["attributes"], "no message asked for it"


def _check_views(seen: Seen, traces: list[str]) -> None:
    """A batch links to the relay's span of each request that it has, however they were divided."""
    sent = [s for one in traces for s in seen.of(one) if s["kind"] == "PRODUCER"]
    assert [seen.way(span)[1:] for span in sent] == [[("look", os.getpid())]] * len(traces)
    runs = [
        span
        for span in seen.spans
        if (span["kind"], span["attributes"].get("oncepool.request.type")) == ("CONSUMER", "count")
    ]
    links = [link for span in runs for link in span["links"]]
    assert sorted(links) == sorted(span["id"] for span in sent)
    for span in runs:
        assert span["parent"] is None or [span["parent"]] == span["links"]
