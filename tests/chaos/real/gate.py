"""A gate before a service: a TCP proxy that cuts, holds, slows, and loses or delays one reply."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Self

OFFSET_COMMIT = 8


class Frames:
    """Cuts one direction of a Kafka connection into frames. Pure."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, each with its length before it."""
        self._rest += data
        found = []
        while len(self._rest) >= 4:
            (length,) = struct.unpack_from(">i", self._rest)
            if len(self._rest) < 4 + length:
                break
            found.append(self._rest[: 4 + length])
            self._rest = self._rest[4 + length :]
        return found


class Wish:
    """What is to happen to the reply of the next fitting request."""

    def __init__(self, fits: Callable[[bytes], bool], delay: float | None) -> None:
        """`delay`: None loses it, with its connection."""
        self.fits, self.delay = fits, delay
        self.correlation: bytes | None = None
        self.link: Link | None = None
        self.fulfilled = threading.Event()


class Link:
    """One connection through the gate."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.up, self.down = Frames(), Frames()

    def cut(self) -> None:
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Gate:
    """Listens on `port` (0: any) and leads to `target`. `frames`: what passes is Kafka's."""

    def __init__(self, target: tuple[str, int], port: int = 0, *, frames: bool = False) -> None:
        self._target, self._frames = target, frames
        self._flow = threading.Event()
        self._flow.set()
        self._lock = threading.Lock()
        self._links: set[Link] = set()
        self._wish: Wish | None = None
        self.delay = 0.0
        """Seconds by which everything that passes is late."""
        self.passed = 0
        """Bytes so far."""
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._accept_in_thread(self._listener)

    @property
    def links(self) -> int:
        with self._lock:
            return len(self._links)

    def break_links(self) -> int:
        """Breaks every connection that is open; new ones are welcome. How many there were."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def close(self) -> int:
        """Breaks all and refuses new ones; how many there were."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        return self.break_links()

    def hold(self) -> None:
        """Connections stay and new ones are taken, but nothing passes."""
        self._flow.clear()

    def open(self) -> None:
        """Ends whatever was done to it."""
        self.delay = 0.0
        self._wish = None
        self._flow.set()
        with self._lock:
            closed = self._listener is None
        if closed:
            listener = socket.create_server(("127.0.0.1", self.port))
            with self._lock:
                self._listener = listener
            self._accept_in_thread(listener)

    def wish(self, fits: Callable[[bytes], bool], delay: float | None = None) -> Wish:
        """Has the reply of the next fitting request (a frame, or what was read) lost or late."""
        self._wish = wish = Wish(fits, delay)
        return wish

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
        self.close()

    def _accept_in_thread(self, listener: socket.socket) -> None:
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, 5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(near, far)
            with self._lock:
                self._links.add(link)
            for up in (True, False):
                threading.Thread(target=self._pump, args=(link, up), daemon=True).start()

    def _pump(self, link: Link, up: bool) -> None:
        source, sink = (link.near, link.far) if up else (link.far, link.near)
        with contextlib.suppress(OSError):
            while data := source.recv(262144):
                if not self._flow.is_set():
                    self._flow.wait()
                if self.delay:
                    time.sleep(self.delay)
                self.passed += len(data)
                if up:
                    self._look_at_requests(link, data)
                elif self._is_lost(link, data):
                    break
                sink.sendall(data)
        link.cut()
        with self._lock:
            here = link in self._links
            self._links.discard(link)
        if not here:  # both directions have ended
            link.near.close()
            link.far.close()

    def _look_at_requests(self, link: Link, data: bytes) -> None:
        frames = link.up.feed(data) if self._frames else [data]
        wish = self._wish
        if wish is None or wish.link is not None:
            return
        for frame in frames:
            if wish.fits(frame):
                wish.link, wish.correlation = link, frame[8:12]
                return

    def _is_lost(self, link: Link, data: bytes) -> bool:
        frames = link.down.feed(data) if self._frames else [data]
        wish = self._wish
        if wish is None or wish.link is not link:
            return False
        if self._frames and not any(frame[4:8] == wish.correlation for frame in frames):
            return False
        self._wish = None
        wish.fulfilled.set()
        if wish.delay is None:
            return True
        time.sleep(wish.delay)
        return False


def is_offset_commit(frame: bytes) -> bool:
    """Whether a request's frame commits offsets."""
    return len(frame) > 12 and struct.unpack_from(">h", frame, 4)[0] == OFFSET_COMMIT


def says_commit(data: bytes) -> bool:
    """Whether a PostgreSQL client commits in what was read at once."""
    return b"COMMIT\0" in data
