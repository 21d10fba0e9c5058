"""A thread that sends one sender's rows: its connection, its turns, its pauses."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, NamedTuple

import psycopg

from feedback.backoff import Breaker
from feedback.outbox.relay.database import Bounds, RelayDatabase
from feedback.outbox.relay.turns import BatchSender, Turns
from feedback.postgres import Connection, open_connection

log = logging.getLogger("oncepool.relay")

LOOK_EVERY: Final = 1.0
"""Seconds between two looks where nobody notifies."""
_STATEMENT: Final = 30.0
"""Seconds that one statement of a turn may take."""
_STOP_STEP: Final = 0.2


class LoopState(NamedTuple):
    """How a sender is doing."""

    sender: str
    turned: float
    """When its loop last turned, on the monotonic clock."""
    database: str | None
    """Why the database counts as away; None where it answers."""
    brokers: str | None
    """Why the brokers count as away; None where they take messages, as far as is known."""
    sent: int
    """Rows that brokers have confirmed."""


class SenderLoop:
    """Turns until it is stopped, through whatever is away."""

    def __init__(
        self, url: str, schema: str, name: str, sender: BatchSender, *, bounds: Bounds | None = None
    ) -> None:
        self._url = url
        self._schema = schema
        self._name = name
        self._sender = sender
        self._turns = Turns(name, sender, bounds=bounds)
        self._stop = threading.Event()
        self._turned = time.monotonic()
        self._database: str | None = "not reached yet"
        self._breaker = Breaker()
        self._listening = True
        self._thread = threading.Thread(target=self._run, name=f"relay-{name}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Asks for the end after the present turn."""
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Whether it has ended within so many seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def state(self) -> LoopState:
        """As it is now."""
        turns = self._turns
        return LoopState(self._name, self._turned, self._database, turns.away, turns.sent)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._turned = time.monotonic()
                self._connected()
        finally:
            self._sender.close()

    def _connected(self) -> None:
        """Serves while one connection lasts, or pauses after one that failed."""
        try:
            with self._open() as connection:
                database = RelayDatabase(connection, self._schema, self._name)
                database.prepare()
                self._listen(connection)
                while not self._stop.is_set():
                    self._step(connection, database)
        except psycopg.Error as error:
            self._lost(error)
        except Exception as error:
            log.exception("sender %s: unexpected error", self._name)
            self._lost(error)

    def _open(self) -> Connection:
        return open_connection(
            self._url,
            "oncepool relay",
            timeouts={
                "statement_timeout": _STATEMENT,
                # Whatever the database has: a batch may take as long as its brokers.
                "idle_in_transaction_session_timeout": 0,
            },
        )

    def _listen(self, connection: Connection) -> None:
        """Through a proxy that pools transactions nothing is heard: the looks are the timer's."""
        try:
            connection.execute(f'LISTEN "{self._schema}"'.encode())
        except psycopg.errors.FeatureNotSupported:
            log.info("sender %s: no notifications through this connection", self._name)

    def _step(self, connection: Connection, database: RelayDatabase) -> None:
        self._turned = time.monotonic()
        pause = self._turns.pause
        if pause > 0:
            self._stop.wait(min(pause, LOOK_EVERY))
            return
        rows = self._turns.turn(database)
        self._answered()
        if not rows and self._turns.away is None:
            self._wait(connection)

    def _wait(self, connection: Connection) -> None:
        """Until somebody has added something, or it is time to look."""
        end = time.monotonic() + LOOK_EVERY
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            for _ in connection.notifies(timeout=min(left, _STOP_STEP), stop_after=1):
                return

    def _answered(self) -> None:
        if self._breaker.open or self._database is not None:
            log.info("sender %s: the outbox answers", self._name)
            self._breaker.succeeded()
            self._database = None

    def _lost(self, error: Exception) -> None:
        why = " ".join(str(error).split()) or repr(error)
        if not self._breaker.open:
            log.warning("sender %s: the outbox is away: %s", self._name, why)
        self._database = why
        self._breaker.failed(time.monotonic())
        end = time.monotonic() + self._breaker.pause(time.monotonic())
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            self._turned = time.monotonic()
            self._stop.wait(min(left, LOOK_EVERY))
