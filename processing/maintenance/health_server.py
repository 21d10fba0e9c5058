"""GET /livez and /readyz on a port of their own: 200 or 503. /metrics, where there are any.

`?verbose` lists what was looked at, as JSON where the request accepts that.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from feedback.metrics.exposition import CONTENT_TYPE, MISSING
from processing.maintenance.health import HealthReport

Scrape = Callable[[], bytes]
"""The text for Prometheus. Asked by many threads."""
TEXT, JSON = "text/plain; charset=utf-8", "application/json; charset=utf-8"
READ_TIMEOUT = 5.0
"""Seconds for a request to arrive; a silent connection must not hold a thread for ever."""


KEPT: Final = 1.0
"""Seconds for which a text serves all who ask."""


class OneScrape:
    """Has the text made by one thread at a time, and seldom: leases are renewed beside it."""

    def __init__(self, scrape: Scrape, clock: Callable[[], float] = time.monotonic) -> None:
        self._scrape = scrape
        self._clock = clock
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._text = b""
        self._until = float("-inf")

    def __call__(self) -> bytes:
        """The text, at most `KEPT` seconds old."""
        with self._lock:
            if self._clock() >= self._until:
                self._text = self._scrape()
                self._until = self._clock() + KEPT
            return self._text


class HealthSource(Protocol):
    """Who knows how the process is doing. Asked by many threads."""

    def live(self) -> HealthReport:
        """For /livez."""

    def ready(self) -> HealthReport:
        """For /readyz."""


class HealthServer:
    """Serves from threads of its own until closed."""

    def __init__(
        self, host: str, port: int, health: HealthSource, scrape: Scrape | None = None
    ) -> None:
        """Raises OSError where the port is taken. Without `scrape` there are no metrics."""
        # A function of a class would be called with its object.
        scraped = None if scrape is None else staticmethod(OneScrape(scrape))
        handler = type("Handler", (_Handler,), {"health": health, "scrape": scraped})
        server = _HealthHttpServer6 if ":" in host else _HealthHttpServer
        self._server = server((host, port), handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Lets go of the port."""
        self._server.shutdown()
        self._server.server_close()


class _HealthHttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the name service for a name that nobody needs.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]


class _HealthHttpServer6(_HealthHttpServer):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    health: HealthSource
    scrape: Scrape | None
    timeout = READ_TIMEOUT
    server_version = "oncepool"
    sys_version = ""

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        match target.path:
            case "/livez":
                answer = self.health.live()
            case "/readyz":
                answer = self.health.ready()
            case "/metrics":
                self._scraped()
                return
            case _:
                self._send(404, "there are /livez, /readyz and /metrics\n")
                return
        self._answer(answer, verbose="verbose" in parse_qs(target.query, keep_blank_values=True))

    do_HEAD = do_GET  # noqa: N815 - the base class looks for that name

    def _answer(self, answer: HealthReport, *, verbose: bool) -> None:
        status = 200 if answer.ok else 503
        if "application/json" in self.headers.get("accept", ""):
            body = answer.as_json() if verbose else {"ok": answer.ok}
            self._send(status, json.dumps(body) + "\n", JSON)
        elif verbose:
            self._send(status, answer.as_text())
        else:
            self._send(status, "ok\n" if answer.ok else "failed\n")

    def _scraped(self) -> None:
        if self.scrape is None:
            self._send(404, MISSING)
        else:
            self._send(200, self.scrape(), CONTENT_TYPE)

    def _send(self, status: int, body: str | bytes, kind: str = TEXT) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # the base class names it
        """Nothing: probes come every few seconds."""
