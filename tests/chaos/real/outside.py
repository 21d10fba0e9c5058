"""The world outside: a server that records each charge, also a second one for the same id."""

from __future__ import annotations

import random
import socketserver
import threading
from collections import Counter
from typing import Self


class Outside:
    """``CHARGE id`` is recorded and answered; ``FIND id`` says yes or no.

    `lose` is the share of charges that are made and not answered.
    """

    def __init__(self, seed: int, lose: float) -> None:
        self.charges: Counter[str] = Counter()
        self.lost: set[str] = set()
        """Charges that were made, and their answer lost."""
        self._random, self._lose = random.Random(seed), lose
        self._lock = threading.Lock()
        outside = self

        class Call(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline().decode()
                if not line.endswith("\n"):
                    return  # who connected was killed before it has asked
                what, _, name = line.strip().partition(" ")
                answer = outside.answer(what, name)
                if answer:
                    self.wfile.write(f"{answer}\n".encode())

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Call)
        self.port: int = self._server.server_address[1]

    def answer(self, what: str, name: str) -> str:
        with self._lock:
            if what == "FIND":
                return "yes" if self.charges[name] else "no"
            self.charges[name] += 1
            if self._random.random() < self._lose:
                self.lost.add(name)
                return ""
            return "charged"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
