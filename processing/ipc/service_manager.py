"""Tells a service manager (systemd) that this process is ready, alive or ending: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

LEAST_PAUSE: Final = 1.0
"""Seconds between two signs of life, at least."""


class ServiceManager:
    """Who listens at NOTIFY_SOCKET; where that is not set, nobody, and nothing is done.

    Signs of life are asked for by WATCHDOG_USEC, and given twice in each such time at most. No
    call raises or waits: a manager that does not take a message misses it.
    """

    def __init__(
        self, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        # "@" stands for the abstract namespace; what else there is (vsock) is for machines.
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._socket: socket.socket | None = None
        if path[:1] in {"/", "@"}:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self._clock = clock
        self._pause = _pause(environ) if self._socket else None
        self._next = clock()
        self._ready = False

    def ready(self, status: str) -> None:
        """It has started. A further call only changes the line that `systemctl status` shows."""
        first = "" if self._ready else "READY=1\n"
        self._ready = True
        self._say(f"{first}STATUS={status}")

    def alive(self) -> None:
        """The loop turns. To be called at least once a second."""
        now = self._clock()
        if self._pause is not None and now >= self._next:
            self._next = now + self._pause
            self._say("WATCHDOG=1")

    def stopping(self, status: str) -> None:
        """It ends, in its own time."""
        self._say(f"STOPPING=1\nSTATUS={status}")

    def _say(self, text: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(text.encode(), self._address)


def _pause(environ: Mapping[str, str]) -> float | None:
    """Seconds between two signs of life; None where none are wanted of this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        wanted = int(environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return max(LEAST_PAUSE, wanted / 2e6) if wanted > 0 else None
