"""Where spans go: to the provider that the program has set up, else where OTEL_* variables say."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

_log = logging.getLogger("oncepool.tracing")

FLUSH_AT_EXIT: Final = 2.0
"""Seconds that spans may take at the end of a process."""
_GROUP: Final = "opentelemetry_traces_exporter"
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


class NoExporter(Exception):
    """What OTEL_* variables name is not there, in words."""


class SpanProvider:
    """That of this process, found or made as late as possible, so that an app may set its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there = False
        self._wanted = threading.Event()
        self._flushed = threading.Event()

    def provide(self) -> None:
        """Sees that there is one. From here on it cannot be replaced."""
        if self._there:
            return
        with self._lock:
            if not self._there:
                self._find()
                self._there = True

    def _find(self) -> None:
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(provider_of(os.environ))
        self._begin()
        os.register_at_fork(after_in_child=self._begin)
        atexit.register(self.flush, FLUSH_AT_EXIT)

    def flush(self, seconds: float) -> None:
        """Hands on what has ended. For the end of a process: an exporter may hang."""
        self._wanted.set()
        if self._there and not self._flushed.wait(seconds):
            _log.warning("spans were left behind: their exporter takes longer than %s s", seconds)

    def _begin(self) -> None:
        """Starts the thread that flushes: at its end a process can start none."""
        self._wanted, self._flushed = threading.Event(), threading.Event()
        threading.Thread(target=self._live, name="tracing's end", daemon=True).start()

    def _live(self) -> None:
        wanted, flushed = self._wanted, self._flushed
        wanted.wait()
        provider: Any = trace.get_tracer_provider()
        try:
            if hasattr(provider, "force_flush"):
                provider.force_flush()
        except Exception:  # noqa: BLE001 - another's code, at the end of a process
            _log.exception("spans could not be handed on")
        finally:
            flushed.set()


def provider_of(environ: Mapping[str, str]) -> TracerProvider:
    """A provider with the exporters that OTEL_TRACES_EXPORTER names, `otlp` where it names none.

    What a name lacks is logged: requests run without spans.
    """
    provider = TracerProvider(shutdown_on_exit=False)  # that may wait for ever for an exporter
    for exporter in _exporters(environ):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporters(environ: Mapping[str, str]) -> Iterator[SpanExporter]:
    names = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    for name in filter(None, map(str.strip, names.split(","))):
        if name == "none":
            continue
        try:
            made = _exporter(name, environ)
        except NoExporter as error:
            _log.error("no spans go to %s of OTEL_TRACES_EXPORTER: %s", name, error)
        except Exception:  # noqa: BLE001 - another's code: requests run without it
            _log.exception("no spans go to %s of OTEL_TRACES_EXPORTER", name)
        else:
            yield made


def _exporter(name: str, environ: Mapping[str, str]) -> SpanExporter:
    wanted = [name]
    if name == "otlp":
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        if protocol and protocol.strip() not in _OTLP:
            raise NoExporter(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: {' or '.join(_OTLP)} can be sent"
            )
        wanted = [_OTLP[protocol.strip()]] if protocol else list(_OTLP.values())
    for one in wanted:
        for found in entry_points(group=_GROUP, name=one):
            made: SpanExporter = found.load()()
            return made
    install = "install the one that does"
    if name == "otlp":
        install = f"pip install opentelemetry-exporter-{wanted[0].replace('_', '-')}"
    raise NoExporter(
        f"no package brings the exporter {' or '.join(wanted)}: {install}, or set"
        " OTEL_TRACES_EXPORTER to another (`none` for none)"
    )
