"""The open readers of result records of one client."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack

from feedback.client.own_calls import OwnCalls
from feedback.client.results import Results
from feedback.errors import ConfigurationError


class Subscriptions:
    """The open readers of one client."""

    def __init__(self, kafka: object, topic: str, calls: OwnCalls | None = None) -> None:
        """`calls`: of the client, where those of its readers count as well."""
        self._calls = calls
        self._kafka = {"bootstrap.servers": kafka} if isinstance(kafka, str) else kafka
        self._topic = topic
        # Taken again by a signal handler that closes in the middle of what is done with it.
        self._lock = threading.RLock()
        self._open: set[Results] = set()  # guarded by _lock
        self._closed = False  # guarded by _lock

    def open(self, group: str | None, topic: str | None, *, from_beginning: bool) -> Results:
        """A new reader; one that is closed, where all of them were meanwhile.

        Raises ConfigurationError where it is not known what to read, ResultsFailed.
        """
        name = topic or self._topic
        if not name:
            raise ConfigurationError(
                "no results topic: name it here, or set ONCEPOOL_KAFKA_RESULTS_TOPIC"
            )
        if not isinstance(self._kafka, Mapping):
            raise ConfigurationError("results() needs to know the brokers: not only a producer")
        made = Results(
            self._kafka, name, group,
            from_beginning=from_beginning, closed=self._forget, calls=self._calls,
        )  # fmt: skip
        with self._lock:
            self._open.add(made)
            closed = self._closed
        if closed:
            made.close()
        return made

    def close(self) -> None:
        """Closes them all, whatever one of them raises, and those that are being made."""
        with self._lock:
            self._closed = True
            left = list(self._open)
        with ExitStack() as each:
            for results in left:
                each.callback(results.close)

    def forked(self) -> None:
        """Called in a process that was forked."""
        for results in list(self._open):
            results.forked()

    def _forget(self, results: Results) -> None:
        with self._lock:
            self._open.discard(results)
