"""A TCP proxy in front of a service, so that a test can cut it off without disturbing others."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Listens on a port of its own and forwards to `host:port`.

    ``cut()`` breaks every connection and refuses new ones; ``hang()`` keeps them but forwards
    nothing; ``mend()`` ends both. ``lose_answer(b"COMMIT")`` breaks one connection: the next whose
    client says that, once the service has answered, so what was said has been done; `for_good`:
    and as ``cut()`` from then on.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._flow = threading.Event()
        self._flow.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._losing: bytes | None = None
        self._then_cut = False
        self._silent: set[socket.socket] = set()
        self.lost = 0
        """Answers that were lost so far."""
        self._listener: socket.socket | None = None
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    @classmethod
    def of(cls, url: str) -> Self:
        """One that stands before the service at this URL."""
        address = urlsplit(url)
        return cls(address.hostname or "127.0.0.1", address.port or 5432)

    def lead_to(self, url: str) -> None:
        """New connections go to the service at this URL; those that are there stay."""
        address = urlsplit(url)
        self._target = (address.hostname or "127.0.0.1", address.port or 5432)

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

    def lose_answer(self, to: bytes, *, for_good: bool = False) -> None:
        with self._lock:
            self._losing, self._then_cut = to, for_good

    def before(self, url: str) -> str:
        """The URL of the service behind, through this proxy."""
        address = urlsplit(url)
        user, at, _ = address.netloc.rpartition("@")
        return address._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

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

    def _is_lost(self, source: socket.socket, sink: socket.socket, data: bytes) -> bool:
        with self._lock:
            if source in self._silent:
                self._silent.discard(source)
                self.lost += 1
                return True
            if self._losing is not None and self._losing in data:
                self._losing = None
                self._silent.add(sink)
            return False

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flow.wait()
                if self._is_lost(source, sink, data):
                    if self._then_cut:
                        self.cut()
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            gone = source in self._open
            self._open.discard(source)
        if gone:
            source.close()
