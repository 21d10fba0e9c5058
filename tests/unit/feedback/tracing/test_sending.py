"""Spans of producers: client, outbox and relay."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from feedback import AsyncClient, Client, DeliveryFailed
from feedback.outbox.relay.batch import Batch, ClaimedRow
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.topic import TopicLimit
from feedback.outbox.rows import row_of
from feedback.status.memory_store import MemoryStatusStore
from feedback.tracing.switch import TracingSwitch
from tests.support.client import FakeProducer
from tests.support.spans import header_of, recorded, told

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Recording:
    def __init__(self, switch: TracingSwitch, kept: InMemorySpanExporter) -> None:
        self.switch = switch
        self._kept = kept

    def spans(self) -> list[dict[str, Any]]:
        return [told(span) for span in self._kept.get_finished_spans()]

    def named(self, name: str) -> dict[str, Any]:
        (found,) = [span for span in self.spans() if span["name"] == name]
        return found


@pytest.fixture
def recording() -> Iterator[Recording]:
    with recorded() as (switch, kept):
        yield Recording(switch, kept)


def headers_of(producer: FakeProducer, n: int = 0) -> dict[str, bytes]:
    return dict(producer.sent[n]["headers"])


def test_what_a_client_sends_is_a_child_of_what_asked_for_it(recording: Recording) -> None:
    producer = FakeProducer()
    with Client(producer, MemoryStatusStore(), "requests") as client:
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            client.submit("pay", {}, request_id="r-1", key="k")
        client.flush()

    sent, asked = recording.named("send requests"), recording.named("checkout")
    assert (sent["kind"], sent["status"]) == ("PRODUCER", "UNSET")
    assert (sent["trace"], sent["parent"]) == (asked["trace"], asked["id"])
    assert headers_of(producer)["traceparent"] == header_of(sent)
    assert sent["attributes"] == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "requests",
        "messaging.message.id": "r-1",
        "messaging.kafka.message.key": "k",
        "oncepool.request.type": "pay",
    }


def test_a_trace_context_that_is_given_is_the_parent(recording: Recording) -> None:
    producer = FakeProducer()
    headers = {"traceparent": THEIRS, "tracestate": "vendor=1", "other": "stays"}
    with Client(producer, MemoryStatusStore(), "requests") as client:
        client.submit("pay", {}, headers=headers)
        client.submit("pay", {}, headers={"traceparent": "nonsense"})
        client.flush()

    first, second = recording.spans()
    assert (first["trace"], first["parent"]) == tuple(THEIRS.split("-")[1:3])
    sent = headers_of(producer)
    assert sent["traceparent"] == header_of(first)
    assert (sent["tracestate"], sent["other"]) == (b"vendor=1", b"stays")
    assert [name for name, _ in producer.sent[0]["headers"]].count("traceparent") == 1
    assert second["parent"] is None


def test_a_trace_context_handed_on_inside_of_its_trace_is_not(recording: Recording) -> None:
    """As a gateway does that is mounted in an application with spans of its own."""
    producer = FakeProducer()
    with Client(producer, MemoryStatusStore(), "requests") as client:
        with trace.get_tracer("shop").start_as_current_span("first"):
            came = dict(recording.switch.context())["traceparent"]
            with trace.get_tracer("shop").start_as_current_span("serves it"):
                client.submit("pay", {}, headers={"traceparent": came})
        client.flush()
    assert recording.named("send requests")["parent"] == recording.named("serves it")["id"]


def test_a_delivery_that_fails_is_an_error_of_its_span(recording: Recording) -> None:
    producer = FakeProducer()
    producer.error = "timed out"
    client = Client(producer, MemoryStatusStore(), "requests")
    client.submit("pay", {})
    with suppress(DeliveryFailed):
        client.close()

    (span,) = recording.spans()
    assert span["status"] == "ERROR"
    assert span["attributes"]["error.type"] == "_MSG_TIMED_OUT"


def test_no_span_is_left_of_what_the_queue_had_no_room_for(recording: Recording) -> None:
    producer = FakeProducer()
    producer.room = 0
    client = Client(producer, MemoryStatusStore(), "requests", queue_timeout=0.01)
    with pytest.raises(Exception, match="queue"):
        client.submit("pay", {})
    client.close()
    assert recording.spans() == []


def test_tasks_have_spans_of_their_own(recording: Recording) -> None:
    async def ask(client: AsyncClient, name: str) -> None:
        with trace.get_tracer("shop").start_as_current_span(name):
            await asyncio.sleep(0)
            await client.submit("pay", {}, request_id=name)

    async def work() -> None:
        async with AsyncClient(FakeProducer(), MemoryStatusStore(), "requests") as client:
            await asyncio.gather(ask(client, "a"), ask(client, "b"))

    asyncio.run(work())
    for name in ("a", "b"):
        (sent,) = [
            s for s in recording.spans() if s["attributes"].get("messaging.message.id") == name
        ]
        assert sent["parent"] == recording.named(name)["id"]


def stored(row: Any) -> list[tuple[str, bytes]]:
    return [(name, base64.b64decode(value)) for name, value in row.fields["headers"]]


def test_an_outbox_keeps_the_context_and_the_relay_goes_on_from_there(
    recording: Recording,
) -> None:
    with trace.get_tracer("shop").start_as_current_span("order"):
        row = row_of("pay", {}, {"request_id": "r-1"})
        given = row_of("pay", {}, {"headers": {"traceparent": THEIRS}})
    assert dict(stored(row))["traceparent"] == header_of(recording.named("order"))
    assert dict(stored(given))["traceparent"] == THEIRS.encode()
    assert "traceparent" not in dict(stored(row_of("pay", {}, {})))

    producer = FakeProducer()
    sender = TopicSender(
        "requests", {}, connect=lambda *_, **__: producer, limit=lambda *_: TopicLimit(),
        spans=recording.switch.spans(),
    )  # fmt: skip
    assert sender.open() is None
    claimed = ClaimedRow(
        1, "r-1", "pay", None, b"{}", stored(row), datetime.now(UTC), datetime.now(UTC), 0
    )
    assert sender.send(Batch([claimed], lambda _: None), [claimed], 10) is None

    sent = recording.named("send requests")
    assert sent["parent"] == recording.named("order")["id"]
    assert headers_of(producer)["traceparent"] == header_of(sent)
