"""A proxy before a server, which takes a prefix off the paths."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

WAIT = 60.0
_OF_THE_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class PrefixProxy:
    """Serves while it is entered."""

    def __init__(self, address: tuple[str, int], prefix: str) -> None:
        """`address` is that of the server behind it."""
        handler = type("PrefixHandler", (_Handler,), {"behind": address, "prefix": prefix})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT)


class _Handler(BaseHTTPRequestHandler):
    behind = ("", 0)
    prefix = ""

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _pass_on(self) -> None:
        if not self.path.startswith(f"{self.prefix}/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        connection = http.client.HTTPConnection(*self.behind, timeout=WAIT)
        headers = {name: value for name, value in self.headers.items()
                   if name.lower() not in _OF_THE_HOP}  # fmt: skip
        path = self.path.removeprefix(self.prefix)
        connection.request(self.command, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
