"""A thread that waits for a connection and for what other threads give it, at the same time."""

from __future__ import annotations

import contextlib
import selectors
import socket


class Waker:
    """One thread waits; any thread wakes it. A wake before the wait is not lost."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def wake(self) -> None:
        """Ends the wait, now or when it begins."""
        with contextlib.suppress(BlockingIOError):  # enough has been said
            self._theirs.send(b"\0")

    def wait(self, descriptor: int | None, timeout: float | None) -> bool:
        """Waits until it is woken, the descriptor is readable, or time is over (None: never).

        True where the descriptor is readable.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            if descriptor is not None:
                selector.register(descriptor, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(timeout)}
        if self._ours.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                while self._ours.recv(4096):
                    pass
        return descriptor in ready
