"""A service of somebody else's: it notes each call when it comes, and answers when it may."""

from __future__ import annotations

import socketserver
import threading
from collections import Counter

_LONGEST = 120.0


class RecordingServer(socketserver.ThreadingTCPServer):
    """Takes lines `make ID`, `hang ID` (never answered) and `find ID` (yes or no)."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.answers = threading.Event()
        """Calls of `make` are answered."""
        self._made: list[str] = []  # one append each
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def made(self) -> Counter[str]:
        """Id -> how often it was called."""
        return Counter(self._made)

    def note(self, name: str) -> None:
        self._made.append(name)

    def close(self) -> None:
        self.answers.set()
        self.shutdown()
        self.server_close()


class _Call(socketserver.StreamRequestHandler):
    server: RecordingServer
    timeout = _LONGEST

    def handle(self) -> None:
        what, name = self.rfile.readline().decode().split()
        if what == "find":
            self.wfile.write(b"yes\n" if name in self.server.made else b"no\n")
            return
        self.server.note(name)
        if what == "hang":
            self.rfile.read()  # until the caller is gone
        elif self.server.answers.wait(_LONGEST):
            self.wfile.write(b"made\n")
