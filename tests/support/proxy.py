"""A TCP proxy in front of a service, so that a test can cut it off without disturbing others."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Proxy:
    """Listens on a port of its own and forwards to `host:port`.

    ``cut()`` breaks every connection and refuses new ones; ``hang()`` keeps them but forwards
    nothing; ``mend()`` ends both.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._flow = threading.Event()
        self._flow.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def cut(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
            sockets = list(self._open)
        if listener is not None:
            # Not only close(): the thread in accept() would keep the port open.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for end in sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def hang(self) -> None:
        self._flow.clear()

    def mend(self) -> None:
        self._flow.set()
        with self._lock:
            missing = self._listener is None
        if missing:
            listener = self._listen(self.port)
            with self._lock:
                self._listener = listener

    @property
    def connections(self) -> int:
        """Connections that are open, each counted at both ends."""
        with self._lock:
            return len(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.mend()
        self.cut()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flow.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            gone = source in self._open
            self._open.discard(source)
        if gone:
            source.close()
