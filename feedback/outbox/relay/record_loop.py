"""A thread that reads the result records of one sender's requests."""

from __future__ import annotations

import time
from typing import Final

from feedback.backoff import Breaker
from feedback.errors import StoreUnavailable
from feedback.outbox.relay.loop import LoopState, OutboxLoop, log
from feedback.outbox.relay.records import KeptRecords, Position, RecordSource
from feedback.outbox.relay.settling import Settling
from feedback.postgres import Connection

_POLL: Final = 0.5
_MOST_KEPT: Final = 5_000


class RecordLoop(OutboxLoop):
    """Reads a results topic."""

    def __init__(self, url: str, sender: str, source: RecordSource, settling: Settling) -> None:
        super().__init__(url, f"{sender} results")
        self._source = source
        self._settling = settling
        self._kept = KeptRecords()
        self._read = False
        """Whether something was polled since the mark, or the last commit."""
        self._mark: tuple[frozenset[str], Position] | None = None
        """What of the records up to a position was kept there."""
        self._away: str | None = None
        self._source_breaker = Breaker()

    @property
    def state(self) -> LoopState:
        """As it is now."""
        done = self._settling.ended
        return LoopState(self._name, self._turned, self._database, self._away, done, sends=False)

    def _begin(self, connection: Connection) -> None:
        connection.execute("SELECT 1")
        self._answered()

    def _step(self, connection: Connection) -> None:
        if len(self._kept) < _MOST_KEPT:
            try:
                polled = self._source.poll(_POLL)
            except StoreUnavailable as error:
                self._fail(error)
                return
            self._kept.add(polled, time.monotonic())
            self._read = self._read or bool(polled)
            if self._away is not None:
                log.info("%s: results are read again", self._name)
                self._away = None
                self._source_breaker.succeeded()
        else:
            self._pause(_POLL)
        results = self._kept.look(time.monotonic())
        if results:
            self._kept.keep(self._settling.records(connection, results))
            self._answered()
        self._commit()

    def _commit(self) -> None:
        """Commits what is done up to a mark, as under load something is kept all the time."""
        if self._mark is None and self._read:
            self._mark, self._read = (self._kept.ids(), self._source.position()), False
        if self._mark is None:
            return
        ids, position = self._mark
        if ids.isdisjoint(self._kept.ids()):
            self._source.commit(position)
            self._mark = None

    def _fail(self, error: StoreUnavailable) -> None:
        if self._away is None:
            log.warning("%s: %s", self._name, error)
        self._away = str(error)
        self._source_breaker.failed(time.monotonic())
        self._source.close()
        self._mark = None
        self._pause(self._source_breaker.pause(time.monotonic()))

    def _close(self) -> None:
        self._source.close()
