"""Leaks that are planted in a main process, so that a soak can show that it finds them."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

MIB = 2**20
VARIABLE = "CHAOS_LEAKS"
"""Kinds, comma separated."""


class Leaks:
    """The side of the process."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self._due = dict.fromkeys(kinds, time.monotonic())
        self._kept: list[object] = []

    def drip(self) -> None:
        """Leaks what is due."""
        for kind in self._kinds:
            seconds, leak = KINDS[kind]
            if time.monotonic() >= self._due[kind]:
                self._due[kind] = time.monotonic() + seconds
                self._kept.append(leak())


def memory() -> object:
    return os.urandom(MIB // 4)


def descriptor() -> object:
    return os.open(os.devnull, os.O_RDONLY)


def thread() -> object:
    made = threading.Thread(target=time.sleep, args=(24 * 3600,), daemon=True)
    made.start()
    return made


def connection() -> object:
    url = urlsplit(os.environ["ONCEPOOL_REDIS_URL"])
    try:
        return socket.create_connection((url.hostname, url.port), 1)
    except OSError:  # an outage
        return None


KINDS: Mapping[str, tuple[float, Callable[[], object]]] = {
    "memory": (6.0, memory),
    "descriptor": (60.0, descriptor),
    "thread": (60.0, thread),
    "connection": (60.0, connection),
}
"""Seconds from one to the next: 2.5 MiB a minute, and one a minute of the others."""
