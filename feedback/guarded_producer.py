"""A Kafka producer that may fail for good, and how that is seen.

librdkafka gives an idempotent producer up where it can no longer tell what the brokers have of what
it sent: it takes nothing any more, ever. confluent-kafka says so once, as an exception that comes
out of whichever poll() or flush() is next, of any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException

_SLICE: Final = 0.1
"""Seconds of one flush(). From 0.2 on confluent-kafka goes on in the same call after the exception,
and what reports come then are lost."""
NESTED: Final = (
    "not inside a callback of the Kafka client, nor in a signal handler that interrupts a call"
)
"""confluent-kafka ends the process where a callback has the client serve callbacks."""
TAKEN_BACK: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
"""Codes of what purge() and end() take back."""
_ENDING: Final = 5.0
"""Seconds, at most, for the reports of what was taken back: they are there at once."""


class PlainProducer(Protocol):
    """What is used of confluent_kafka.Producer."""

    def produce(self, topic: str, **arguments: Any) -> None: ...

    def poll(self, timeout: float) -> int: ...

    def flush(self, timeout: float) -> int: ...

    def purge(self) -> None: ...

    def __len__(self) -> int: ...


ProducerT = TypeVar("ProducerT", bound=PlainProducer)


class GuardedProducer(Generic[ProducerT]):
    """One producer, whose failure is noted where it is heard of. Any thread may use it.

    `produce` is that of the producer: who calls it tells hears() of the errors that it raises, and
    of those that reports bring.
    """

    def __init__(self, producer: ProducerT) -> None:
        self._thread = threading.local()
        self.handle = producer
        self.produce = producer.produce
        self.failure: str | None = None
        """Why it takes nothing any more; None as long as it does."""

    def hears(self, error: KafkaError) -> bool:
        """Whether the producer has failed for good, as this error or an earlier one says."""
        fatal = error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 - its public name
        if fatal and self.failure is None:
            self.failure = error.str()
        return self.failure is not None

    def give_up(self, reason: str) -> None:
        """Has it fail for good: from now on its queue is full.

        Nobody may be inside `produce` meanwhile: what comes in after end() is reported by nobody.
        """

        def full(topic: str, **_arguments: Any) -> None:
            raise BufferError(f"{topic}: {reason}")

        self.failure, self.produce = reason, full

    @property
    def serving(self) -> bool:
        """Whether this thread is in poll() or flush(): a callback asks, or a signal handler."""
        return getattr(self._thread, "serving", False)

    def poll(self, timeout: float) -> None:
        """Serves reports that come within so many seconds.

        Raises RuntimeError within a callback.
        """
        try:
            self._serve(self.handle.poll, timeout)
        except KafkaException as error:
            if not self.hears(error.args[0]):
                raise

    def flush(self, timeout: float) -> int:
        """Waits until every message is confirmed or failed. How many in the end are not.

        Raises RuntimeError within a callback.
        """
        end = time.monotonic() + timeout
        left = timeout
        while True:
            missing = self._flush(max(0.0, min(left, _SLICE)))
            left = end - time.monotonic()
            if not missing or left <= 0:
                return missing

    def end(self, timeout: float = _ENDING) -> int:
        """Takes back what is not confirmed, and serves the reports of that. As flush()."""
        self.purge()
        return self.flush(timeout)

    def purge(self) -> None:
        """Takes back what is not confirmed; that it failed is reported then."""
        with suppress(KafkaException):
            self.handle.purge()

    def _flush(self, timeout: float) -> int:
        try:
            return self._serve(self.handle.flush, timeout)
        except KafkaException as error:
            if not self.hears(error.args[0]):
                raise
            return 1  # or more

    def _serve(self, serve: Callable[[float], int], timeout: float) -> int:
        if self.serving:
            raise RuntimeError(NESTED)
        try:
            self._thread.serving = True
            return serve(timeout)
        finally:
            self._thread.serving = False
