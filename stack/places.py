"""Where the stack keeps its data and what it fetched, and which ports it takes."""

from __future__ import annotations

import os
import random
import socket
from contextlib import closing
from pathlib import Path

from stack.errors import StackError
from stack.waiting import pauses

SYSTEM_DATA = Path("/var/lib/oncepool")
LOCALHOST = "127.0.0.1"
LOCAL_NAMES = frozenset({LOCALHOST, "localhost"})
FIRST_PORT, LAST_PORT = 20000, 31999
TRIES = 200


_RANDOM = random.SystemRandom()
"""Programs that were given the same seed choose different ports all the same."""


def data_folder() -> Path:
    """The data folder where none is named: ONCEPOOL_STACK_DATA, else one for each user.

    For root it is not below its home directory, because PostgreSQL, which refuses to run as root,
    could not enter that.
    """
    if named := os.environ.get("ONCEPOOL_STACK_DATA"):
        return Path(named)
    if os.geteuid() == 0:
        return SYSTEM_DATA / "stack"
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "oncepool" / "stack"


def cache_folder() -> Path:
    """Where fetched programs are kept for all data folders: ONCEPOOL_STACK_CACHE, or the user's."""
    if named := os.environ.get("ONCEPOOL_STACK_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "oncepool"


def free_port(taken: set[int]) -> int:
    """A TCP port that nobody listens on, and adds it to `taken`.

    It lies below the range from which the system gives ports to connections going out: else one of
    those could take it while a service is stopped, and the service could not come back on it.
    """
    for _ in range(TRIES):
        port = _RANDOM.randint(FIRST_PORT, LAST_PORT)
        if port not in taken and port_is_free(port):
            taken.add(port)
            return port
    raise StackError(f"no free port between {FIRST_PORT} and {LAST_PORT} found in {TRIES} tries")


def port_is_free(port: int) -> bool:
    """True where a service could listen on this port now."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As servers do: connections of an earlier run in TIME_WAIT are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def become_free(ports: set[int], timeout: float = 2.0) -> bool:
    """Waits until all these ports are free; False when one is still taken after `timeout` seconds.

    A killed server may hold its port for a moment after the system reports its end: threads of it
    are still ending.
    """
    return any(all(port_is_free(port) for port in ports) for _ in pauses(timeout))


def answers(host: str, port: int, timeout: float = 0.5) -> bool:
    """True where somebody accepts connections at this address."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True
