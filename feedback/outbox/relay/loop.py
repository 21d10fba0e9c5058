"""Threads with a connection to an outbox, through whatever is away."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import ClassVar, Final, NamedTuple

import psycopg

from feedback.errors import OutboxError, StoreUnavailable
from feedback.outbox.checks import encoding_problem, refuse_other_version
from feedback.outbox.missing_tables import missing_named
from feedback.outbox.relay.answers import AnswerPace, AnswerPolicy
from feedback.outbox.relay.broker_watch import ASK_EVERY, BrokerWatch
from feedback.outbox.relay.database import Bounds, RelayDatabase
from feedback.outbox.relay.kept_shards import KeptShards
from feedback.outbox.relay.outage import RelayOutage
from feedback.outbox.relay.settling import AnswersBusy, Settling
from feedback.outbox.relay.statuses import StatusReader
from feedback.outbox.relay.transactions import transaction
from feedback.outbox.relay.turns import BatchSender, SendTurns
from feedback.postgres import Connection, listen, one_line, open_connection
from feedback.status.store import StatusStore

log = logging.getLogger("oncepool.relay")

LOOK_EVERY: Final = 1.0
"""Seconds between two looks where nobody notifies."""
_STOP_STEP: Final = 0.2
_ASKED: Final = "oncepool-relay"
"""An id that no request has."""


class LoopState(NamedTuple):
    """How a thread is doing."""

    name: str
    """Its sender, or whose answers it reads."""
    turned: float
    """When its loop last turned, on the monotonic clock."""
    database: str | None
    """Why the outbox counts as away; None where it answers."""
    other: str | None
    """Why the brokers, or the status store, count as away; None where they answer."""
    done: int
    """Rows that brokers have confirmed, or that have ended."""
    sends: bool = True
    """Whether it sends, or reads answers: without those, rows are sent all the same."""
    sender: str = ""
    service: str = "brokers"
    """What `other` is about: brokers, statuses or results."""
    again: int = 0
    """Rows that it has put back to be sent once more."""
    kept: str | None = None
    """Why due rows of some shards are not sent, while others go; None where none are known."""


class OutboxLoop(ABC):
    """Steps until it is stopped; connects again where a connection is lost."""

    def __init__(self, url: str, name: str, schema: str) -> None:
        self._url = url
        self._name = name
        self._schema = schema
        self._looked = False
        """It was of this version: one that is upgraded meanwhile is worked with all the same."""
        self._stop = threading.Event()
        self._turned = time.monotonic()
        self._outbox = RelayOutage("not reached yet")
        self._thread = threading.Thread(target=self._run, name=f"relay-{name}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Asks for the end after the present step."""
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Whether it has ended within so many seconds, or never begun."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    @abstractmethod
    def state(self) -> LoopState:
        """As it is now."""

    @abstractmethod
    def _begin(self, connection: Connection) -> None:
        """Once for each connection. Raises psycopg.Error."""

    @abstractmethod
    def _step(self, connection: Connection) -> None:
        """Some work or, without any, a pause. Raises psycopg.Error."""

    @abstractmethod
    def _close(self) -> None:
        """At the end."""

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._connected()
        finally:
            self._close()

    def _connected(self) -> None:
        """Serves while one connection lasts, or pauses after one that failed."""
        try:
            with self._open() as connection, missing_named(self._schema):
                self._look(connection)
                self._begin(connection)
                while not self._stop.is_set():
                    self._turned = time.monotonic()
                    self._step(connection)
        except OutboxError as error:
            self._unusable(error)
        except psycopg.Error as error:
            self._lost(error)
        except Exception as error:
            log.exception("%s: unexpected error", self._name)
            self._lost(error)

    def _open(self) -> Connection:
        return open_connection(self._url, "oncepool relay")

    def _look(self, connection: Connection) -> None:
        """Raises OutboxError for an outbox of another version, psycopg.Error."""
        if self._looked:
            return
        with transaction(connection):
            refuse_other_version(connection, self._schema)
        self._looked = True

    def _answered(self) -> None:
        """The outbox has done what was asked."""
        if self._outbox.end():
            log.info("%s: the outbox answers", self._name)

    def _lost(self, error: Exception) -> None:
        why = one_line(error)
        if self._outbox.begin(why):
            log.warning("%s: the outbox is away: %s", self._name, why)
        self._pause(self._outbox.pause)

    def _unusable(self, error: OutboxError) -> None:
        """It is there, and somebody has to do what this says: news also after an outage."""
        why = str(error)
        if self._outbox.why != why:
            log.error("%s: %s", self._name, why)
        self._outbox.begin(why)
        self._pause(self._outbox.pause)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            self._turned = time.monotonic()
            self._stop.wait(min(left, LOOK_EVERY))


class SenderLoop(OutboxLoop):
    """Sends one sender's rows."""

    def __init__(
        self,
        url: str,
        schema: str,
        sender: str,
        topic: BatchSender,
        *,
        bounds: Bounds | None,
        policy: AnswerPolicy,
        store: StatusStore | None = None,
    ) -> None:
        super().__init__(url, sender, schema)
        self._sender = topic
        self._policy = policy
        self._store = store
        statuses = None if store is None else StatusReader(store)
        self._turns = SendTurns(sender, topic, bounds=bounds, statuses=statuses)
        self._rows: RelayDatabase | None = None
        self._kept = KeptShards(sender)
        self._brokers = BrokerWatch(sender, topic.ask, lambda: self._turns.sent, self._stop)

    def start(self) -> None:
        """Begins."""
        super().start()
        self._brokers.start()

    @property
    def state(self) -> LoopState:
        """As it is now."""
        turns = self._turns
        away = turns.away or self._brokers.away
        return LoopState(
            self._name, self._turned, self._outbox.why, away, turns.sent, sender=self._name,
            kept=self._kept.why,
        )  # fmt: skip

    def _begin(self, connection: Connection) -> None:
        # Behind what was claimed last: what can't be read of some shards keeps no others.
        first = 0 if self._rows is None else self._rows.first
        self._rows = RelayDatabase(connection, self._schema, self._name, self._policy, first)
        self._rows.prepare()
        if not listen(connection, self._schema):
            log.info("%s: no notifications through this connection", self._name)

    def _step(self, connection: Connection) -> None:
        if self._rows is None:
            return
        if self._turns.pause > 0:
            self._pause(min(self._turns.pause, LOOK_EVERY))
            return
        # What these tell of is seen by this turn. Kept, each would be a turn of its own later.
        for _ in connection.notifies(timeout=0):
            pass
        self._kept.look(self._rows)
        rows = self._turns.turn(self._rows)
        self._answered()
        if not rows and self._turns.pause <= 0:
            self._wait(connection)

    def _wait(self, connection: Connection) -> None:
        """Until somebody has added something, or it is time to look.

        Through a proxy that pools transactions nothing is heard.
        """
        end = time.monotonic() + LOOK_EVERY
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            self._turned = time.monotonic()
            for _ in connection.notifies(timeout=min(left, _STOP_STEP), stop_after=1):
                return

    def _close(self) -> None:
        self._sender.close()
        if self._store is not None:
            self._store.close()


class ReadingLoop(OutboxLoop):
    """Reads somewhere else what became of one sender's rows."""

    _service: ClassVar[str]
    """What it reads, as the log and the state name it."""

    def __init__(self, url: str, sender: str, what: str, settling: Settling) -> None:
        super().__init__(url, f"{sender} {what}", settling.schema)
        self._sender = sender
        self._settling = settling
        self._source = RelayOutage()
        self._warned = False

    @property
    def state(self) -> LoopState:
        """As it is now."""
        return LoopState(
            self._name, self._turned, self._outbox.why, self._source.why, self._settling.ended,
            sends=False, sender=self._sender, service=self._service, again=self._settling.again,
        )  # fmt: skip

    def _begin(self, connection: Connection) -> None:
        # A server that only answers is no use: what is read has to be written.
        self._settling.probe(connection)
        problem = None if self._warned else encoding_problem(connection)
        if problem is not None:
            log.warning("%s: %s", self._name, problem.text)
        self._warned = True

    def _unread(self, why: str, said: str) -> None:
        """Nothing could be read: a pause; `said` in the log where that is news."""
        self._away(why, said)
        self._pause(self._source.pause)

    def _away(self, why: str, said: str) -> None:
        if self._source.begin(why):
            log.warning("%s: %s", self._name, said)

    def _is_read(self) -> None:
        if self._source.end():
            log.info("%s: %s are read again", self._name, self._service)


class AnswerLoop(ReadingLoop):
    """Reads statuses."""

    _service = "statuses"

    def __init__(self, url: str, sender: str, store: StatusStore, settling: Settling) -> None:
        super().__init__(url, sender, "answers", settling)
        self._store = store
        self._pace = AnswerPace()
        self._ask_at = 0.0

    def _step(self, connection: Connection) -> None:
        try:
            more = self._settling.page(connection, self._pace.young)
            if not more:
                self._ask(time.monotonic())
        except AnswersBusy:
            self._answered()
            return
        except StoreUnavailable as error:
            self._answered()  # has told what to ask for, and would take what came
            self._unread(str(error), f"statuses can't be read: {error}")
            return
        self._pace.looked(self._settling.worked)
        self._answered()
        self._is_read()
        if not more:
            self._pause(self._pace.ended(time.monotonic()))

    def _ask(self, now: float) -> None:
        """Where no row waits for an answer, nothing else is read. Raises StoreUnavailable."""
        if self._source.why is not None or now >= self._ask_at:
            self._ask_at = now + ASK_EVERY
            self._store.read_raw([_ASKED])

    def _close(self) -> None:
        self._store.close()
