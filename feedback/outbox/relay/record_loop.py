"""A thread that reads the result records of one sender's requests."""

from __future__ import annotations

import time
from typing import Final

from feedback.errors import StoreUnavailable
from feedback.outbox.relay.answers import RequestKey
from feedback.outbox.relay.identity import database_identity
from feedback.outbox.relay.loop import ReadingLoop
from feedback.outbox.relay.records import KeptRecords, Position, RecordSource
from feedback.outbox.relay.settling import Settling
from feedback.postgres import Connection

_POLL: Final = 0.5


class RecordLoop(ReadingLoop):
    """Reads a results topic."""

    _service = "results"

    def __init__(self, url: str, sender: str, source: RecordSource, settling: Settling) -> None:
        super().__init__(url, sender, "results", settling)
        self._records = source
        self._kept = KeptRecords()
        self._read = False
        """Whether something was polled since the mark, or the last commit."""
        self._mark: tuple[frozenset[RequestKey], Position] | None = None
        """What of the records up to a position was kept there."""

    def _begin(self, connection: Connection) -> None:
        # What was read and not written comes again: nothing of it was committed.
        self._records.close()
        self._kept, self._mark, self._read = KeptRecords(), None, False
        super()._begin(connection)
        self._answered()
        self._records.serve(database_identity(connection))

    def _step(self, connection: Connection) -> None:
        if not self._kept.full:
            try:
                polled = self._records.poll(_POLL)
            except StoreUnavailable as error:
                self._fail(error)
                return
            self._kept.add(polled, time.monotonic())
            self._read = self._read or bool(polled)
            self._tell(self._records.away)
        else:
            self._pause(_POLL)
        if fading := self._kept.fading(time.monotonic()):
            waited_for = self._settling.on_their_way(connection, fading)
            self._kept.renew(waited_for.intersection(fading), time.monotonic())
        results = self._kept.look(time.monotonic())
        if results:
            self._kept.keep(self._settling.records(connection, results))
            self._kept.wait(self._settling.locked, time.monotonic())
            self._answered()
        self._commit()

    def _commit(self) -> None:
        """Commits what is done up to a mark, as under load something is kept all the time."""
        if self._mark is None and self._read:
            self._mark, self._read = (self._kept.keys(), self._records.position()), False
        if self._mark is None:
            return
        keys, position = self._mark
        if keys.isdisjoint(self._kept.keys()):
            self._records.commit(position)
            self._mark = None

    def _tell(self, away: str | None) -> None:
        """The client goes on by itself once brokers are back: it is not given up for that."""
        if away is None:
            self._is_read()
        elif self._source.why is None:
            self._away(away, f"results can't be read: {away}")

    def _fail(self, error: StoreUnavailable) -> None:
        self._records.close()
        self._mark = None
        self._unread(str(error), str(error))

    def _close(self) -> None:
        self._records.close()
