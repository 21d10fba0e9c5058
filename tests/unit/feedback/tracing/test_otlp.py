"""Spans by OTLP over HTTP, turned on as users do it: by variables alone."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

exporter = "opentelemetry.exporter.otlp.proto.http"
pytest.importorskip(exporter, reason="pip install opentelemetry-exporter-otlp-proto-http")
service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

ROOT = Path(__file__).resolve().parents[4]
THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

SHOP = f"""
from feedback import Client
from feedback.status.memory_store import MemoryStatusStore
from tests.support.client import FakeProducer
with Client(FakeProducer(), MemoryStatusStore(), "orders") as client:
    for n in range(2):
        client.submit("pay", {{}}, request_id=f"pay-{{n}}", headers={{"traceparent": "{THEIRS}"}})
print("sent", flush=True)
"""


class Post(NamedTuple):
    """What a collector was sent."""

    path: str
    headers: dict[str, str]
    body: bytes


@contextmanager
def collector() -> Iterator[tuple[str, list[Post]]]:
    """The URL of one, and what it gets."""
    posts: list[Post] = []

    class Calls(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            posts.append(Post(self.path, headers, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Calls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", posts
        finally:
            server.shutdown()
            thread.join()


def run(endpoint: str) -> subprocess.CompletedProcess[str]:
    """A program that sends two requests."""
    variables = {
        "ONCEPOOL_TRACING": "on",
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    # Whatever the environment of the tests says of exporters or proxies is not meant.
    kept = {n: v for n, v in os.environ.items() if not n.startswith("OTEL_")} | {"NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, "-c", SHOP], cwd=ROOT, env=kept | variables,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("sent\n", 0), done.stderr
    return done


def test_a_collector_gets_what_was_sent_when_the_program_ends() -> None:
    with collector() as (url, posts):
        done = run(url)
    assert done.stderr == ""
    (post,) = posts
    assert (post.path, post.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
    assert (post.headers["x-key"], post.headers["content-encoding"]) == ("secret", "gzip")
    got = service.ExportTraceServiceRequest.FromString(gzip.decompress(post.body))

    (resource,) = got.resource_spans
    said = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (said["service.name"], said["deployment.environment.name"]) == ("shop", "test")
    (scope,) = resource.scope_spans
    assert scope.scope.name == "oncepool"
    for n, span in enumerate(sorted(scope.spans, key=lambda span: span.start_time_unix_nano)):
        assert (span.name, span.kind) == ("send orders", span.SPAN_KIND_PRODUCER)
        assert [span.trace_id.hex(), span.parent_span_id.hex()] == THEIRS.split("-")[1:3]
        attributes = {one.key: one.value.string_value for one in span.attributes}
        assert attributes["messaging.message.id"] == f"pay-{n}"
    assert len(scope.spans) == 2


def test_where_no_collector_is_the_program_sends_and_ends_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
    done = run(nowhere)
    assert "refused" in done.stderr or "left behind" in done.stderr
