"""GET /livez and /readyz on a port of their own: 200 or 503.

`?verbose` lists what was looked at, as JSON where the request accepts that.
"""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from processing.maintenance.health import HealthReport

READ_TIMEOUT = 5.0
"""Seconds for a request to arrive; a silent connection must not hold a thread for ever."""


class HealthSource(Protocol):
    """Who knows how the process is doing. Asked by many threads."""

    def live(self) -> HealthReport:
        """For /livez."""

    def ready(self) -> HealthReport:
        """For /readyz."""


class HealthServer:
    """Serves from threads of its own until closed."""

    def __init__(self, host: str, port: int, health: HealthSource) -> None:
        """Raises OSError where the port is taken."""
        handler = type("Handler", (_Handler,), {"health": health})
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
            case _:
                self._send(404, "text/plain", "there are /livez and /readyz\n")
                return
        self._answer(answer, verbose="verbose" in parse_qs(target.query, keep_blank_values=True))

    do_HEAD = do_GET  # noqa: N815 - the base class looks for that name

    def _answer(self, answer: HealthReport, *, verbose: bool) -> None:
        status = 200 if answer.ok else 503
        if "application/json" in self.headers.get("accept", ""):
            body = answer.as_json() if verbose else {"ok": answer.ok}
            self._send(status, "application/json", json.dumps(body) + "\n")
        elif verbose:
            self._send(status, "text/plain", answer.as_text())
        else:
            self._send(status, "text/plain", "ok\n" if answer.ok else "failed\n")

    def _send(self, status: int, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # the base class names it
        """Nothing: probes come every few seconds."""
