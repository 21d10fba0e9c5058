"""Brokers that librdkafka plays within this process, and that are gone at once."""

from __future__ import annotations

import gc
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.waiting import eventually

_LATE: Final = 30.0
PLACE: Final = ("backlog", 0)
"""The partition that they have."""


class MockBrokers:
    """Three of them, with a partition."""

    def __init__(self) -> None:
        self._playing: Any = Producer({"test.mock.num.brokers": 3, "log_level": 0})
        found = self._playing.list_topics(timeout=_LATE).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in found)
        self._down: list[str] = []
        # It hears of their end after all others, as it takes longer to look for them again.
        self._witness: Any = Producer(
            {
                "bootstrap.servers": self.servers,
                "reconnect.backoff.ms": 1000,
                "error_cb": lambda error: self._down.append(error.name()),
                "log_level": 0,
            }
        )
        self._witness.list_topics(timeout=_LATE)

    def write(self, values: list[bytes]) -> None:
        """Messages that they have then."""
        topic, partition = PLACE
        for value in values:
            self._playing.produce(topic, value, partition=partition)
        assert self._playing.flush(_LATE) == 0

    def end_behind(self, consumer: Consumer, count: int) -> None:
        """They go once the consumer has fetched so many messages, none of which is taken yet.

        It is served by nobody meanwhile: that all are down stands behind what it has fetched.
        """
        at = TopicPartition(*PLACE)
        consumer.assign([TopicPartition(*PLACE, 0)])
        eventually(lambda: consumer.get_watermark_offsets(at, cached=True)[1] == count, _LATE)
        self.end()

    def end(self) -> None:
        """They go, and others have noticed it."""
        self._playing = None
        gc.collect()
        eventually(self._all_down, _LATE)

    def _all_down(self) -> bool:
        self._witness.poll(0)
        return "_ALL_BROKERS_DOWN" in self._down
