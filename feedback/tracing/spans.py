"""Spans by OpenTelemetry's semantic conventions for messaging. Loaded only where tracing is on.

Nothing that a sampler, a processor or an exporter raises comes out: it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from feedback.tracing.provider import SpanProvider

Attributes: TypeAlias = Mapping[str, str | int]
_log = logging.getLogger("oncepool.tracing")

TRACE: Final = ("traceparent", "tracestate")
"""Headers of the W3C trace context."""
_W3C: Final = TraceContextTextMapPropagator()


class Spans:
    """Those of this process."""

    def __init__(self) -> None:
        self._provider = SpanProvider()
        self._tracer = trace.get_tracer("oncepool")

    def context(self) -> list[tuple[str, bytes]]:
        """The trace context of what runs here, as headers; empty where there is none."""
        found: list[tuple[str, bytes]] = []
        with _harmless():
            found += _headers(context.get_current())
        return found

    def sending(
        self,
        topic: str,
        request_id: str,
        kind: str,
        key: bytes | None,
        headers: Iterable[tuple[str, bytes]],
    ) -> SendSpan:
        """A message is about to go to the brokers. Its own trace context is this span's parent.

        The current span is, where there is none, or where it is of the same trace: what has come
        with a call is handed on inside of what serves it.
        """
        given = list(headers)
        span: trace.Span = INVALID_SPAN
        with _harmless():
            attributes = {**_operation("send", "send", topic), **of_message(request_id, kind, key)}
            parent = _parent({name: value.decode(errors="replace") for name, value in given})
            if parent is not None and _trace_of(parent) == _trace_of(context.get_current()):
                parent = None
            span = self._start(f"send {topic}", SpanKind.PRODUCER, attributes, parent, [])
            if own := _headers(trace.set_span_in_context(span, Context())):
                given = [pair for pair in given if pair[0] not in TRACE] + own
        return SendSpan(span, given)

    @contextmanager
    def processing(
        self, topic: str | None, attributes: Attributes, creators: Sequence[Mapping[str, Any]]
    ) -> Iterator[OpenSpan]:
        """A handler runs one request, or a batch; `creators` are their headers.

        It is the current span meanwhile. Of one request it is the child of the span that has sent
        it; it links to each that has sent one.
        """
        parents = [found for headers in creators if (found := _parent(headers)) is not None]
        parent = parents[0] if parents and len(creators) == 1 else Context()
        links = [trace.get_current_span(found).get_span_context() for found in parents]
        named = {**_operation("process", "process", topic), **attributes}
        with self._open(_named("process", topic), SpanKind.CONSUMER, named, parent, links) as span:
            yield span

    @contextmanager
    def settling(
        self, topic: str | None, attributes: Attributes, runs: Sequence[SpanContext]
    ) -> Iterator[None]:
        """The ends of runs are written and committed. It is the child of a single one."""
        parent = Context()
        if len(runs) == 1:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(runs[0]), parent)
        named = {**_operation("settle", "settle", topic), **attributes}
        with self._open(_named("settle", topic), SpanKind.CLIENT, named, parent, runs) as span:
            try:
                yield
            except BaseException as error:
                span.fail(error)
                raise

    def provide(self) -> None:
        """Sees that there is a provider, which otherwise the first span does."""
        with _harmless():
            self._provider.provide()

    def flush(self, seconds: float) -> None:
        """Hands on what has ended, within so many seconds."""
        self._provider.flush(seconds)

    @contextmanager
    def _open(
        self, name: str, kind: SpanKind, attributes: Attributes, parent: Context,
        links: Sequence[SpanContext],
    ) -> Iterator[OpenSpan]:  # fmt: skip
        span = self._start(name, kind, attributes, parent, links)
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield OpenSpan(span)
        finally:
            context.detach(token)
            _end(span)

    def _start(
        self, name: str, kind: SpanKind, attributes: Attributes, parent: Context | None,
        links: Sequence[SpanContext],
    ) -> trace.Span:  # fmt: skip
        try:
            self._provider.provide()
            return self._tracer.start_span(
                name, parent, kind, dict(attributes), [Link(one) for one in links]
            )
        except Exception:  # noqa: BLE001 - of a sampler or a processor of others
            _log.exception("a span was not begun")
            return INVALID_SPAN


class OpenSpan:
    """A span of something that goes on."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def context(self) -> SpanContext:
        """For links, and for children elsewhere."""
        return self._span.get_span_context()

    @property
    def trace_id(self) -> str:
        """As hexadecimal digits, as log lines have it."""
        return trace.format_trace_id(self.context.trace_id)

    def say(self, attributes: Attributes) -> None:
        """More is known of it."""
        self._span.set_attributes(dict(attributes))

    def fail(
        self, error: BaseException | None, code: str = "error", why: str | None = None
    ) -> None:
        """It came to nothing; `error` is what was raised, if anything was."""
        with _harmless():
            self._span.set_attribute("error.type", code if error is None else _class_of(error))
            self._span.set_status(StatusCode.ERROR, why)
            if error is not None:
                self._span.record_exception(error)


class SendSpan(OpenSpan):
    """A message on its way to the brokers."""

    __slots__ = ("headers",)

    def __init__(self, span: trace.Span, headers: list[tuple[str, bytes]]) -> None:
        super().__init__(span)
        self.headers = headers
        """What the message carries: with this span's context."""

    def reported(self, error: Any, message: Any = None) -> None:
        """As a delivery report of librdkafka says it: a KafkaError, or None, and a Message."""
        with _harmless():
            if error is not None:
                self.fail(None, error.name(), error.str())
            elif message is not None:
                partition, offset = message.partition(), message.offset()
                if partition is not None and offset is not None:
                    self.say(at_offset(partition, offset))
        _end(self._span)


def of_message(request_id: str, kind: str, key: bytes | None) -> dict[str, str | int]:
    """Attributes of one message."""
    found: dict[str, str | int] = {
        "messaging.message.id": request_id,
        "oncepool.request.type": kind,
    }
    if key is not None:
        found["messaging.kafka.message.key"] = key.decode(errors="replace")
    return found


def at_offset(partition: int, offset: int) -> dict[str, str | int]:
    """Attributes of where a message stands."""
    return {"messaging.destination.partition.id": str(partition), "messaging.kafka.offset": offset}


def _operation(name: str, kind: str, topic: str | None) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if topic is not None:
        found["messaging.destination.name"] = topic
    return found


def _named(operation: str, topic: str | None) -> str:
    return operation if topic is None else f"{operation} {topic}"


def _class_of(error: BaseException) -> str:
    """As record_exception has it."""
    kind = type(error)
    inside = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return inside + kind.__qualname__


def _headers(of: Context) -> list[tuple[str, bytes]]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, of)
    return [(name, value.encode()) for name, value in carrier.items()]


def _parent(headers: Mapping[str, Any]) -> Context | None:
    """The trace context of a message; None where it has none that can be read."""
    carrier = {name: value for name in TRACE if isinstance(value := headers.get(name), str)}
    if not carrier:
        return None
    found = _W3C.extract(carrier, Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def _trace_of(where: Context) -> int:
    return trace.get_current_span(where).get_span_context().trace_id


def _end(span: trace.Span) -> None:
    with _harmless():
        span.end()


@contextmanager
def _harmless() -> Iterator[None]:
    """A sampler or processor of others may be called in here."""
    try:
        yield
    except Exception:  # noqa: BLE001 - whatever it is, it is no reason for a request to fail
        _log.exception("a span is missing, or not whole")
