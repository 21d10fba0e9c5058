"""Takes result records out of the journal to the results topic, in a thread of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg

from feedback.backoff import Backoff, Breaker
from feedback.journal.connections import open_connection
from feedback.journal.result_outbox import MOST_BYTES, remove_results, take_results
from feedback.postgres import bounded_transaction, one_line
from processing.logs import BoundLogger
from processing.settings import MaintenanceSettings

if TYPE_CHECKING:
    from processing.maintenance.result_producer import ResultProducer

AT_ONCE: Final = 500
SHORTEST: Final = 0.5
LONGEST: Final = 5.0
"""Seconds between two looks while records come, and when none have come for long. Those of this
instance wake it; others are what operators write, and what an instance that died has left."""
FIRST_RETRY: Final = 0.5
LAST_RETRY: Final = 10.0
AGAIN: Final = 10.0
"""Seconds after which records are tried again whose partitions took nothing."""
BETWEEN: Final = 30.0
"""Seconds after which some of them are, though there are always newer ones to send."""

_TIMEOUTS: Final = {
    "statement_timeout": 10.0,
    # An instance that hangs must not keep its batch from the others for longer.
    "idle_in_transaction_session_timeout": 60.0,
}


class RelayTiming:
    """When to look for records. Pure: rounds and a clock in, pauses out."""

    def __init__(self, now: float, breaker: Breaker | None = None) -> None:
        self._breaker = breaker or Breaker(FIRST_RETRY, LAST_RETRY)
        self._due = now
        self._looks = Backoff(SHORTEST, LONGEST)

    @property
    def away(self) -> bool:
        """Whether the last round failed."""
        return self._breaker.open

    def wake(self, now: float) -> None:
        """Records may have been written."""
        self._due = min(self._due, now)

    def worked(self, taken: int, now: float) -> None:
        """A round has delivered what it took."""
        self._breaker.succeeded()
        if taken:
            self._looks.reset()
        self._due = now if taken >= AT_ONCE else now + self._looks.next()

    def failed(self, now: float) -> None:
        """A round has failed, in whole or in part: neither wake() nor more records hasten it."""
        self._breaker.failed(now)
        self._due = now

    def pause(self, now: float) -> float:
        """Seconds until the next round."""
        return max(0.0, self._due - now, self._breaker.pause(now))


class RelayPlace:
    """Where to take records: from the oldest on, or behind those that were left. Pure.

    Left is what is for partitions that take nothing: it is tried again after a while, once the
    newest was reached. Where that is not for long, some of it is tried in between: one batch in a
    while, and what follows at once where all of a batch has arrived.
    """

    def __init__(self) -> None:
        self._after = 0
        self._left_at: float | None = None
        """When some were left, or tried again in between and left once more."""
        self._at_end = False
        self._between = False
        self._back = 0
        """Behind which what was left is tried next in between."""
        self._all_arrived = True
        """What was tried so since that began with the oldest."""

    def begin(self, now: float) -> int:
        """Number of the record behind which the next ones are taken; 0 for all."""
        waited = 0.0 if self._left_at is None else now - self._left_at
        if self._at_end and waited >= AGAIN:
            self._begin_anew()
        self._between = self._left_at is not None and not self._at_end and waited >= BETWEEN
        return self._back if self._between else self._after

    def took(self, last: int, *, left: bool, more: bool, now: float) -> None:
        """Up to the record `last`, of which some were left or not; whether there may be more."""
        if self._between:
            self._took_between(last, left=left, now=now)
            return
        if left and self._left_at is None:
            self._left_at = now
        if self._left_at is not None:
            self._after = max(self._after, last)
        self._at_end = not more

    def _took_between(self, last: int, *, left: bool, now: float) -> None:
        self._all_arrived = self._all_arrived and not left
        if left:
            self._left_at = now
        self._back = last
        if 0 < last < self._after:
            return
        if self._all_arrived:
            self._begin_anew()
        else:
            self._after, self._back, self._all_arrived = max(self._after, last), 0, True

    def _begin_anew(self) -> None:
        self._after, self._left_at, self._back, self._all_arrived = 0, None, 0, True


class Round(NamedTuple):
    """What one batch came to."""

    taken: int
    """Records; as many as there may be at once where more may wait."""
    trouble: str | None = None
    """What kept some of them from arriving."""
    arrived: int = 0
    none_left: bool = False


def result_relay(settings: MaintenanceSettings, log: BoundLogger) -> ResultRelay:
    """The sender that the settings ask for; without a results topic one that does nothing.

    Raises ConfigurationError where the properties of Kafka are wrong.
    """
    topic, kafka = settings.results_topic, settings.results_kafka
    if not topic:
        return ResultRelay(settings, None, log)
    # Here, as without a topic nothing in this process needs a Kafka client.
    from processing.maintenance.result_producer import result_producer

    return ResultRelay(settings, result_producer(topic, kafka), log)


class ResultRelay:
    """Sends what waits, oldest first, until it is told to stop.

    In one transaction: take and lock, send, delete what arrived. Dying in between means sending it
    again, never losing it. Instances share the work, each with records of its own.
    """

    def __init__(
        self, settings: MaintenanceSettings, producer: ResultProducer | None, log: BoundLogger
    ) -> None:
        self._settings = settings
        self._log = log
        self._connection: psycopg.Connection[Any] | None = None
        self._place = RelayPlace()
        self._waiting = False
        """The log says that records wait."""
        self._changed = threading.Condition()
        # Both below are guarded by _changed.
        self._pace = RelayTiming(time.monotonic())
        self._stopping = False
        self._thread: threading.Thread | None = None
        if producer is not None:
            self._thread = threading.Thread(
                target=self._run, args=(producer,), name="results", daemon=True
            )

    def start(self) -> None:
        """Starts the thread, unless there is no topic to send to."""
        if self._thread is not None:
            self._thread.start()

    def wake(self) -> None:
        """Records may have been written: looks at once, unless a service is away."""
        with self._changed:
            self._pace.wake(time.monotonic())
            self._changed.notify_all()

    def stop(self) -> None:
        """Sends what waits now, unless a service is away, and ends; `join` waits for it."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        """Waits until the thread has ended. What it has not sent stays in the journal."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, producer: ResultProducer) -> None:
        last = False
        while not last:
            last = self._wait()
            if last and self._pace.away:
                break
            try:
                done = self._round(producer)
            except (psycopg.Error, OSError) as error:
                done = Round(0, one_line(error))
            except Exception as error:  # noqa: BLE001 - records wait until the bug is mended
                self._log.exception("sending result records failed")
                done = Round(0, repr(error))
            self._note(done)
            last = last and (done.taken < AT_ONCE or done.trouble is not None)
        self._disconnect()

    def _wait(self) -> bool:
        """Waits until a round is due; True when it is to be one of the last."""
        with self._changed:
            while not self._stopping and (pause := self._pace.pause(time.monotonic())) > 0:
                self._changed.wait(pause)
            return self._stopping

    def _round(self, producer: ResultProducer) -> Round:
        """One batch. Raises psycopg.Error."""
        # Before the transaction: one that is open while brokers are away holds back VACUUM.
        if self._pace.away and not producer.reachable():
            return Round(0, "no broker answers")
        connection = self._open()
        with bounded_transaction(connection, _TIMEOUTS), connection.cursor() as cursor:
            after = self._place.begin(time.monotonic())
            batch = take_results(cursor, self._settings.schema, AT_ONCE, after=after)
            if not batch:
                self._place.took(0, left=False, more=False, now=time.monotonic())
                return Round(0, none_left=not after)
            delivery = producer.deliver(batch)
            remove_results(cursor, self._settings.schema, delivery.arrived)
        for request_id in delivery.shortened:
            self._log.warning(
                "result left out of its record: too large for Kafka", request_id=request_id
            )
        if delivery.stuck:
            self._log.warning(
                "partitions of the results topic take nothing: records for them wait, others go",
                partitions=delivery.stuck,
            )
        size = sum(len(stored.record.result or b"") for stored in batch)
        taken = AT_ONCE if size >= MOST_BYTES else len(batch)
        if delivery.trouble is None:
            left = len(delivery.arrived) < len(batch)
            more = taken >= AT_ONCE
            self._place.took(batch[-1].number, left=left, more=more, now=time.monotonic())
        return Round(taken, delivery.trouble, len(delivery.arrived))

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = open_connection(
                self._settings.database_url,
                f"oncepool results {self._settings.instance}",
            )
        return self._connection

    def _note(self, done: Round) -> None:
        now = time.monotonic()
        with self._changed:
            if done.trouble is None:
                self._pace.worked(done.taken, now)
            else:
                self._pace.failed(now)
        if done.trouble is not None:
            self._disconnect()
            if not self._waiting:
                self._log.warning("result records wait in the journal", detail=done.trouble)
            self._waiting = True
        elif self._waiting and (done.arrived or done.none_left):
            self._log.info("result records are sent again")
            self._waiting = False

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()
