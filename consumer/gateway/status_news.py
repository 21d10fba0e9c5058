"""Statuses of what operators move, written to Redis with no connection to the database in hand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

import psycopg

from consumer.admin.moving import StatusPublisher
from consumer.config.settings import Settings
from feedback.backoff import Breaker
from feedback.contract.states import SETTLED
from feedback.journal.connections import Connection
from feedback.journal.writer import JournalWriter
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import TransitionOutcome
from feedback.status.status import DEFAULT_TTL, StatusWrite
from processing.logs import get_logger

TOLD_WITHIN: Final = 3.0
"""Seconds for which a move's answer waits until its status is written."""

log = get_logger("oncepool.gateway")


class StatusNews:
    """A thread of its own writes all that waits, and ends.

    Where Redis does not answer, nothing is written until it is due to be tried again: the journal
    is right already.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._breaker = Breaker(cap=5.0)  # of the thread
        self._lock = threading.Lock()
        self._waiting: list[tuple[Sequence[StatusWrite], Future[None]]] = []  # guarded by _lock
        self._at_work = False  # guarded by _lock

    def tell(self, connection: Connection, outcome: TransitionOutcome) -> Future[None]:
        """Has the statuses of an outcome written; done when it was tried. From any thread.

        Also of what is refused as it has ended: whose move it was may not have heard that.
        """
        writes = [one.status() for one in outcome.moved]
        writes += self._standing(connection, outcome.refused)
        told: Future[None] = Future()
        if not writes:
            told.set_result(None)
            return told
        with self._lock:
            self._waiting.append((writes, told))
            if not self._at_work:
                thread = threading.Thread(target=self._write_all, name="statuses", daemon=True)
                with suppress(RuntimeError):  # none to be had: the next one takes these along
                    thread.start()
                    self._at_work = True
        return told

    async def heard(self, told: Sequence[Future[None]]) -> None:
        """Waits until they are written, but not for long."""
        if told:
            await asyncio.wait([asyncio.wrap_future(one) for one in told], timeout=TOLD_WITHIN)

    def _standing(self, connection: Connection, refused: Sequence[Refusal]) -> list[StatusWrite]:
        ended = [one.id for one in refused if one.state in SETTLED]
        if not ended:
            return []
        with suppress(psycopg.Error):  # what was moved was moved
            rows = JournalWriter(self._settings.database_schema).find(connection.cursor(), ended)
            return [row.told(row.at, DEFAULT_TTL) for row in rows.values() if row.finished_at]
        return []

    def _write_all(self) -> None:
        while True:
            with self._lock:
                parts, self._waiting = self._waiting, []
                if not parts:
                    self._at_work = False
                    return
            try:
                self._write([one for writes, _ in parts for one in writes])
            except Exception:  # the journal is right, and this thread goes on
                log.exception("statuses were not written")
            finally:
                for _, told in parts:
                    if told.set_running_or_notify_cancel():
                        told.set_result(None)

    def _write(self, writes: Sequence[StatusWrite]) -> None:
        if self._breaker.pause(self._clock()):
            log.warning("statuses were not written: Redis did not answer a moment ago; the journal"
                        " has the changes", statuses=len(writes))  # fmt: skip
            return
        wrong: list[str] = []
        with StatusPublisher(self._settings, wrong.append) as publisher:
            publisher.publish(writes)
        if wrong:
            self._breaker.failed(self._clock())
            log.warning(wrong[0])
        else:
            self._breaker.succeeded()
