"""TCP proxies in front of services: they cut, hang, slow, and lose or delay one answer.

So a test disturbs a service for one client and leaves all others alone.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

CONNECT_TIMEOUT = 5.0
AT_ONCE = 131072
"""Bytes that are read at once, at most."""


def commit_after(statement: bytes) -> Callable[[bytes], bool]:
    """Fits the first COMMIT that follows a request with this in it, whatever was committed before.

    For processes with one connection, which also commit what a test does not ask of them.
    """
    said: list[bytes] = []

    def fits(request: bytes) -> bool:
        if statement in request:
            said.append(request)
        return bool(said) and b"COMMIT" in request

    return fits


class Wish:
    """What is to happen to the answer to the next request that fits."""

    def __init__(self, fits: Callable[[bytes], bool], delay: float | None, cut: bool) -> None:
        """`delay`: None loses it, with its connection; `cut`: and all others, for good."""
        self.fits, self.delay, self.cut = fits, delay, cut
        self.request = b""
        """The one that fitted."""
        self.fulfilled = threading.Event()


class Link:
    """One connection through a proxy."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.wish: Wish | None = None
        """Its request went through here, and its answer has not come yet."""
        self.asked: set[bytes] = set()
        """Numbers of requests on their way whose answers may be changed: each connection has its
        own, and counts from the beginning."""

    def cut(self) -> None:
        """Breaks it at both ends; who reads there closes it."""
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens on `port` (0: any) and forwards to `host:target`, unit by unit: what is read at once.

    ``cut()`` breaks every connection and refuses new ones; ``hang()`` keeps them but forwards
    nothing; ``mend()`` ends whatever was done. ``lose_answer(b"COMMIT")`` breaks one connection:
    the next whose client says that, once the service has answered, so what was said has been done.
    """

    def __init__(self, host: str, target: int, port: int = 0) -> None:
        self._target = (host, target)
        self._flow = threading.Event()
        self._flow.set()
        self._lock = threading.Lock()
        self._links: set[Link] = set()
        self._wish: Wish | None = None
        self.lost = 0
        """Answers that were lost so far."""
        self.delay = 0.0
        """Seconds by which everything that passes is late."""
        self.passed = 0
        """Bytes so far."""
        # Bound, and never listening: else some connection of another test, which takes any port,
        # might have this one when it is mended.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        weakref.finalize(self, self._reserved.close)
        self._reserved.bind(("127.0.0.1", port))
        self.port: int = self._reserved.getsockname()[1]
        self._listener: socket.socket | None = self._listen(self.port)

    @classmethod
    def of(cls, url: str) -> Self:
        """One that stands before the service at this URL."""
        address = urlsplit(url)
        return cls(address.hostname or "127.0.0.1", address.port or 5432)

    def lead_to(self, url: str) -> None:
        """New connections go to the service at this URL; those that are there stay."""
        address = urlsplit(url)
        self._target = (address.hostname or "127.0.0.1", address.port or 5432)

    def before(self, url: str) -> str:
        """The URL of the service behind, through this proxy."""
        address = urlsplit(url)
        user, at, _ = address.netloc.rpartition("@")
        return address._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        with self._lock:
            return len(self._links)

    # Faults

    def cut_connections(self) -> int:
        """Breaks every connection that is open; new ones are welcome. How many there were."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def cut(self) -> int:
        """Breaks all and refuses new ones; how many there were."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            # Not only close(): the thread in accept() would keep the port open.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        return self.cut_connections()

    def hang(self) -> None:
        """Connections stay and new ones are taken, but nothing passes."""
        self._flow.clear()

    def mend(self) -> None:
        """Ends whatever was done to it."""
        self.delay = 0.0
        with self._lock:
            self._wish, missing = None, self._listener is None
            for link in self._links:
                link.wish = None
        self._flow.set()
        if missing:
            listener = self._listen(self.port)
            with self._lock:
                self._listener = listener

    def wish(
        self, fits: Callable[[bytes], bool], delay: float | None = None, *, cut: bool = False
    ) -> Wish:
        """Has the answer to the next fitting request lost or late; `cut`: ``cut()`` then."""
        wish = Wish(fits, delay, cut)
        with self._lock:
            self._wish = wish
        return wish

    def lose_answer(self, to: bytes) -> Wish:
        """Has the answer lost to the next request that has this in it."""
        return self.wish(lambda data: to in data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.mend()
        self.cut()

    # What passes

    def _cutter(self) -> Callable[[bytes], list[bytes]]:
        """For one direction of one connection: makes of what was read the units that are whole now.

        What is not whole yet is kept there, and passed on with its rest. Raises ValueError where
        what was read has no units: the connection is broken then.
        """
        return lambda data: [data]

    def _is_answer(self, unit: bytes, request: bytes) -> bool:
        """Whether the service answers that request so, on the same connection."""
        return True

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        """What becomes of a unit that a client (`up`) or the service has sent."""
        return unit

    def _look_at_requests(self, link: Link, units: list[bytes]) -> None:
        with self._lock:
            wish = self._wish
            request = None if wish is None else next(filter(wish.fits, units), None)
            if wish is not None and request is not None:
                self._wish, link.wish, wish.request = None, wish, request

    def _is_lost(self, link: Link, units: list[bytes]) -> bool:
        with self._lock:
            wish = link.wish
            if wish is None or not any(self._is_answer(unit, wish.request) for unit in units):
                return False
            link.wish = None
            self.lost += wish.delay is None
        wish.fulfilled.set()
        if wish.delay is None:
            if wish.cut:
                self.cut()
            return True
        time.sleep(wish.delay)
        return False

    def _pump(self, link: Link, *, up: bool) -> None:
        try:
            with contextlib.suppress(OSError):
                self._pass_on(link, up=up)
        finally:  # whatever ended it: with one direction alone, both ends would wait for ever
            self._end(link)

    def _pass_on(self, link: Link, *, up: bool) -> None:
        source, sink = (link.near, link.far) if up else (link.far, link.near)
        buffer = memoryview(bytearray(AT_ONCE))  # a new one each time costs more than the rest
        cut = self._cutter()
        while size := source.recv_into(buffer):
            units = cut(bytes(buffer[:size]))
            self._flow.wait()
            if self.delay:
                time.sleep(self.delay)
            self.passed += size
            if up:
                self._look_at_requests(link, units)
            elif self._is_lost(link, units):
                return
            if units:
                sink.sendall(b"".join([self._as_passed_on(link, unit, up=up) for unit in units]))

    def _end(self, link: Link) -> None:
        link.cut()
        with self._lock:
            here = link in self._links
            self._links.discard(link)
        if not here:  # both directions have ended
            link.near.close()
            link.far.close()

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
                far = socket.create_connection(self._target, CONNECT_TIMEOUT)
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
                threading.Thread(
                    target=self._pump, args=(link,), kwargs={"up": up}, daemon=True
                ).start()


def says_commit(data: bytes) -> bool:
    """Whether a PostgreSQL client commits in what was read at once."""
    return b"COMMIT\0" in data
