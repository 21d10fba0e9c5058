"""Whether the configured topics exist: a group that subscribes to one that does not hears nothing.

With KIP-848 the broker accepts such a subscription without a word and assigns no partitions; once
the topic is made it is assigned by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException, Producer

from consumer.config.settings import Settings
from consumer.intake.kafka_log import QuietLog
from consumer.intake.kafka_properties import broker_properties
from feedback.broker_probe import ERRORS_ONLY
from processing.logs import BoundLogger

METADATA_TIMEOUT = 5.0
LOOK_EVERY = 2.0
"""Seconds between two looks while something is missing, or no broker has answered yet; also
between two tries to begin, where the system has no thread left."""
LOOKS = 2
"""So many in a row have to find all topics: a broker may hear late that one was deleted."""

ListTopics = Callable[[], frozenset[str]]
"""The topics of the cluster. Raises KafkaException where no broker answers."""


def topics_of(settings: Settings) -> frozenset[str]:
    """The topics of the cluster, by a client of its own, which is gone afterwards.

    All are asked for, as asking for one by name may create it. Raises KafkaException.
    """
    client = Producer({**broker_properties(settings), "log_level": ERRORS_ONLY}, logger=QuietLog())
    return frozenset(client.list_topics(timeout=METADATA_TIMEOUT).topics)


class TopicWatch:
    """Looks from a thread of its own until all topics are there; `look_again` starts it anew.

    Whoever has it calls `tend` now and then.
    """

    def __init__(
        self, topics: Sequence[str], list_topics: ListTopics, log: BoundLogger, every: float
    ) -> None:
        self._topics = tuple(topics)
        self._list_topics = list_topics
        self._log = log
        self._every = every
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._left = 0
        """Looks that have to find all topics yet; guarded by the lock, as is the next one."""
        self._looking = False
        self._thread: threading.Thread | None = None
        self._begun = 0.0
        """When a thread was started last, or could not be."""
        self.missing: tuple[str, ...] | None = None
        """Topics that do not exist; None as long as that is not known."""

    def look_again(self) -> None:
        """Looks now, and until all is there. Returns at once."""
        with self._lock:
            self._left = LOOKS
            if not self.looking:
                self._begin()

    def tend(self) -> None:
        """Begins a look that is wanted, and that no thread could be started for before."""
        if not self._left:
            return
        with self._lock:
            due = time.monotonic() >= self._begun + self._every
            if self._left and due and not self.looking and not self._stop.is_set():
                self._begin()

    def _begin(self) -> None:
        self._begun = time.monotonic()
        thread = threading.Thread(target=self._run, name="topics", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._log.warning("whether the topics exist is not looked at yet", error=str(error))
        else:
            self._thread, self._looking = thread, True

    @property
    def looking(self) -> bool:
        """It will look again by itself."""
        return self._looking and self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Ends the thread soon."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                there = self._list_topics()
            except KafkaException:
                pass  # the consumer itself complains of brokers that do not answer
            else:
                self._compare(there)
                if self._found():
                    return
            self._stop.wait(self._every)

    def _found(self) -> bool:
        """Whether this look was the last one."""
        with self._lock:
            self._left = LOOKS if self.missing else self._left - 1
            self._looking = self._left > 0
            return not self._looking

    def _compare(self, there: frozenset[str]) -> None:
        before, self.missing = (
            self.missing or (),
            tuple(topic for topic in self._topics if topic not in there),
        )
        for topic in self.missing:
            if topic not in before:
                self._log.warning(
                    "topic does not exist: nothing is consumed from it",
                    topic=topic,
                    advice="run `oncepool topics create`, or correct kafka_topics",
                )
        for topic in before:
            if topic not in self.missing:
                self._log.info("topic exists now", topic=topic)
