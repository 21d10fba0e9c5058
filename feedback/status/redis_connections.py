"""The connections to Redis that the threads of a process share."""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from feedback.bell import Bell
from feedback.errors import StoreUnavailable

_LOOK: Final = 0.05  # seconds until who waits for a connection sees that one has been given up

_KEEPALIVE: Final = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


def open_pool(url: str, timeout: float) -> redis.ConnectionPool:
    """Connections that give up soon and try nothing twice; each is made on its first use.

    All of this product are made here. What one protocol lets pass another may refuse, as a password
    that the server does not have, and a check has to meet what those meet that write statuses.
    """
    options: dict[str, Any] = {"socket_keepalive_options": _KEEPALIVE}
    if url.startswith("unix:"):
        options = {}
    # The defaults of redis-py try ten times and wait 5 s: one call could hang for a minute.
    return redis.ConnectionPool.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
        **options,
    )


class _Slot:
    """What is counted: it goes with its last user, though its connection be in a cycle."""

    __slots__ = ("__weakref__", "connection")

    def __init__(self) -> None:
        self.connection: Any = None
        """Made by its first borrower."""


class RedisConnections:
    """Lends connections as `origin` makes them, about `limit` at once.

    Who finds none free waits `patience` seconds for one.

    What borrows one may be interrupted by a signal handler that raises, anywhere. So there is no
    lock and no count to be left wrong, as in the pools of redis-py: every step on what is kept
    here is one call in C (see feedback.bell.Bell), and what is lost on the way to or from
    its borrower is freed, and then counts no more.
    """

    def __init__(self, origin: redis.ConnectionPool, limit: int, patience: float = 1.0) -> None:
        self._origin = origin
        self._limit = limit
        self._patience = patience
        self._begin()

    @contextmanager
    def lend(self) -> Iterator[Any]:
        """A connection for one exchange. Raises StoreUnavailable, also for what its use raises.

        After any error it is closed and not lent again: replies might be left in it.
        """
        if self._process != os.getpid():
            self._begin()  # the other ones belong to the process that this one is a copy of
        free = self._free
        slot = self._take()
        try:
            if slot.connection is None:  # in here: it opens a file, and there may be none left
                slot.connection = self._origin.connection_class(**self._origin.connection_kwargs)
            _connect(slot.connection)
            yield slot.connection
        except BaseException as error:
            self._there.discard(weakref.ref(slot))
            if slot.connection is not None:
                slot.connection.disconnect()
            if isinstance(error, redis.RedisError | OSError):
                raise StoreUnavailable(f"Redis is not available: {error}") from error
            raise
        # Past `try`: as soon as it is put there, it may be another thread's.
        if free is self._free:
            free.put(slot)
            self._given_back.ring()
        else:
            slot.connection.disconnect()

    def close(self) -> None:
        """Closes those that are free, and each other one when it is given back."""
        free = self._free
        self._begin()
        with suppress(Empty):
            while True:
                free.get_nowait().connection.disconnect()

    def _begin(self) -> None:
        self._free: SimpleQueue[_Slot] = SimpleQueue()
        self._given_back = Bell()
        self._there: set[weakref.ref[_Slot]] = set()  # free or lent
        self._process = os.getpid()

    def _take(self) -> _Slot:
        with suppress(Empty):
            return self._free.get_nowait()
        end = time.monotonic() + self._patience
        while len(self._there) >= self._limit:
            self._given_back.wait(_LOOK)
            with suppress(Empty):
                slot = self._free.get_nowait()
                if not self._free.empty():
                    self._given_back.ring()  # it was rung for several
                return slot
            if time.monotonic() > end:
                raise StoreUnavailable(f"all {self._limit} connections to Redis are in use")
        slot = _Slot()
        self._there.add(weakref.ref(slot, self._there.discard))
        return slot


def _connect(connection: Any) -> None:
    """Connects it, anew where the server has closed it or something was left in it."""
    connection.connect()
    try:
        usable = not connection.can_read()
    except (redis.RedisError, OSError):
        usable = False
    if not usable:
        connection.disconnect()
        connection.connect()
