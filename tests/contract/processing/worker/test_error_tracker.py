"""A tracker that is told from an on_error hook: sentry-sdk, with a server of this test's own."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import pytest
import sentry_sdk

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench

WAIT = 60.0
CARD = "4111-secret"


@pytest.fixture
def sink() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """Where events go, and the events."""
    events: Queue[dict[str, Any]] = Queue()

    class Sink(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            _, kind, *parts = body.split(b"\n")
            if json.loads(kind)["type"] == "event":
                events.put(json.loads(parts[0]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://key@127.0.0.1:{server.server_port}/1", events
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)
    server.shutdown()
    server.server_close()


def test_a_tracker_hears_of_each_failed_attempt_with_its_request(
    stack: Stack, schema: str, sink: tuple[str, Queue[dict[str, Any]]]
) -> None:
    address, events = sink
    app = App()

    @app.on_worker_start
    def tracker() -> None:
        sentry_sdk.init(dsn=address, include_local_variables=False, default_integrations=False)

    @app.on_error
    def report(error: BaseException, request: Request) -> None:
        with sentry_sdk.new_scope() as scope:
            scope.set_tags(
                {"request_id": request.id, "type": request.type, "attempt": request.attempt}
            )
            scope.capture_exception(error)

    @app.handler("pay", retries=1)
    def pay(card: str) -> None:
        raise ValueError("the bank is away")

    bench = Bench(app, stack.database, schema)
    try:
        bench.run(bench.record("a", "pay", CARD))
        event = events.get(timeout=WAIT)
    finally:
        bench.executor.close()
        bench.app.stop_worker()
    assert event["tags"] == {"request_id": "a", "type": "pay", "attempt": 1}
    (raised,) = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("ValueError", "the bank is away")
    assert raised["stacktrace"]["frames"][-1]["function"] == "pay"
    assert CARD not in json.dumps(event), "a payload left the machine"
