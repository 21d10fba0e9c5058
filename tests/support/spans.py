"""Spans in tests: kept in memory, or in a file that many processes write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from feedback.tracing.switch import TracingSwitch

FILE = "ONCEPOOL_TEST_SPANS"
"""Where a SpanFile writes."""
PLACES = ("feedback.client.core", "feedback.outbox.rows", "processing.handlers.request")
"""Who asks whether this process traces."""


@contextmanager
def recorded() -> Iterator[tuple[TracingSwitch, InMemorySpanExporter]]:
    """Tracing is on in this process; its spans, as they end."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        switch = TracingSwitch(on=True)
        for place in PLACES:
            patch.setattr(f"{place}.TRACING", switch)
        yield switch, kept


class SpanFile(SpanExporter):
    """Appends a line for each span, as an exporter that OTEL_TRACES_EXPORTER names."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ[FILE]).open("a") as file:
            file.write("".join(json.dumps(told(span)) + "\n" for span in spans))
        return SpanExportResult.SUCCESS


class HangingExporter(SpanExporter):
    """Never comes back."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        while True:
            os.read(os.pipe()[0], 1)


class FailingExporter(SpanExporter):
    """Takes nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("nobody listens")


def install(folder: Path, **exporters: type[SpanExporter]) -> None:
    """Makes exporters known to programs with this folder on their path, as a package would."""
    info = folder / "span_files-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: span-files\nVersion: 1.0\n")
    lines = [f"{name} = {__name__}:{made.__name__}\n" for name, made in exporters.items()]
    (info / "entry_points.txt").write_text("[opentelemetry_traces_exporter]\n" + "".join(lines))


def told(span: ReadableSpan) -> dict[str, Any]:
    """What a test wants to know of a span."""
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": trace.format_trace_id(context.trace_id),
        "id": trace.format_span_id(context.span_id),
        "flags": context.trace_flags,
        "parent": None if parent is None else trace.format_span_id(parent.span_id),
        "links": [trace.format_span_id(link.context.span_id) for link in span.links],
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
        "events": [event.name for event in span.events],
        "pid": os.getpid(),
    }


def header_of(span: dict[str, Any]) -> bytes:
    """The `traceparent` of a span's children."""
    return f"00-{span['trace']}-{span['id']}-{span['flags']:02x}".encode()
