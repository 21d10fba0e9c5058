"""Whether a process traces, where its spans go, and what that costs whoever does not ask for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from feedback.errors import ConfigurationError
from feedback.tracing.provider import provider_of
from feedback.tracing.spans import Spans
from feedback.tracing.switch import VARIABLE, TracingSwitch
from tests.support.spans import FailingExporter, HangingExporter, SpanFile, install, recorded

ROOT = Path(__file__).resolve().parents[4]

WORKER_OFF = """
import sys
import processing.lean_redis  # whose client loads the part for metrics where it is installed
theirs = set(sys.modules)
import processing.worker.__main__, processing.worker.open_calls
print([name for name in sys.modules.keys() - theirs if name.split(".")[0] == "opentelemetry"])
"""

OFF = """
import sys
import consumer.service.service
from feedback import Client, outbox
from feedback.outbox.rows import row_of
from feedback.status.memory_store import MemoryStatusStore
from tests.support.client import FakeProducer
row_of("t", {}, {})
with Client(FakeProducer(), MemoryStatusStore(), "t") as client:
    client.submit("t", {})
print([name for name in sys.modules if name.split(".")[0] == "opentelemetry"])
"""

ENDING = """
from feedback.tracing.switch import TRACING
spans = TRACING.spans()
with spans.processing("t", {}, []):
    pass
print("alive", flush=True)
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("code", [OFF, WORKER_OFF], ids=["producer and main", "worker"])
def test_where_it_is_off_nothing_of_it_is_loaded(code: str) -> None:
    done = run(code)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.mark.parametrize("text, on", [("on", True), ("TRUE", True), ("off", False), ("", False)])
def test_the_environment_says_it_unless_the_settings_do(
    monkeypatch: pytest.MonkeyPatch, text: str, on: bool
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert (TracingSwitch().spans() is not None) == on
    settings = TracingSwitch()
    settings.turn(on=not on)
    assert (settings.spans() is not None) != on


def test_what_is_neither_on_nor_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "enabled")
    with pytest.raises(ConfigurationError, match="'enabled': it has to be on or off"):
        TracingSwitch().spans()


def test_a_protocol_that_nothing_sends_is_named(caplog: pytest.LogCaptureFixture) -> None:
    provider_of({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json': http/protobuf or grpc" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "feedback.tracing.spans", raising=False)
    monkeypatch.delitem(sys.modules, "feedback.tracing.provider", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'oncepool\[tracing\]'"):
        TracingSwitch(on=True).spans()


def test_exporters_are_those_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, file=SpanFile)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ONCEPOOL_TEST_SPANS", str(tmp_path / "spans"))
    provider = provider_of({"OTEL_TRACES_EXPORTER": "file, nosuch,none"})
    [line] = caplog.text.splitlines()  # and no traceback
    assert "no package brings the exporter nosuch" in line
    assert "or set OTEL_TRACES_EXPORTER" in line
    with provider.get_tracer("t").start_as_current_span("one"):
        pass
    provider.shutdown()
    assert '"one"' in (tmp_path / "spans").read_text()


def test_what_the_exporter_that_nobody_named_needs_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("feedback.tracing.provider.entry_points", lambda **_: [])
    provider_of({})
    assert "pip install opentelemetry-exporter-otlp-proto-http" in caplog.text


def test_exporters_that_hang_or_fail_hold_up_nobody(tmp_path: Path) -> None:
    """Neither what is traced nor the end of the process, but for two seconds."""
    install(tmp_path, failing=FailingExporter, hanging=HangingExporter)
    done = run(
        ENDING, PYTHONPATH=str(tmp_path), ONCEPOOL_TRACING="on",
        OTEL_TRACES_EXPORTER="failing,hanging",
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr
    assert "nobody listens" in done.stderr
    assert "spans were left behind" in done.stderr


def test_what_goes_wrong_in_a_sampler_or_processor_stays_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with recorded() as (switch, _):
        spans = switch.spans()
        assert isinstance(spans, Spans)

        class Broken:
            def start_span(self, *_: object) -> None:
                raise RuntimeError("sampler")

        monkeypatch.setattr(spans, "_tracer", Broken())
        with spans.processing("t", {}, []) as span:
            span.fail(ValueError("no"))
        sent = spans.sending("t", "r", "k", None, [("traceparent", b"as it came")])
    assert sent.headers == [("traceparent", b"as it came")]
    assert "sampler" in caplog.text
