"""A producer of result records without a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

Verdict = Callable[[list[bytes]], KafkaError | None]


def never(_values: list[bytes]) -> KafkaError | None:
    return None


class FakeProducer:
    """Judges what one flush() has to send together, as brokers judge a message set.

    Where made() is asked for one that sends each message alone it judges each of them.
    """

    def __init__(self, verdict: Verdict, *, refuse_at_once: bool = False) -> None:
        self.verdict = verdict
        self.refuse_at_once = refuse_at_once
        self.room = 10_000
        self.reachable = True
        self.probes = 0
        self.sent: list[dict[str, Any]] = []
        self.alone = False
        self._open: list[tuple[bytes, Callable[..., None]]] = []

    def produce(self, topic: str, **arguments: Any) -> None:
        if len(self._open) == self.room:
            raise BufferError
        if self.refuse_at_once and (error := self.verdict([arguments["value"]])):
            raise KafkaException(error)
        self.sent.append({"topic": topic, **arguments})
        self._open.append((arguments["value"], arguments["on_delivery"]))

    def poll(self, timeout: float) -> int:
        return 0

    def made(self, more: Mapping[str, Any]) -> FakeProducer:
        """What a producer with these properties does; what is sent is in one list."""
        another = copy(self)
        another.alone, another._open = more.get("batch.num.messages") == 1, []
        return another

    def flush(self, timeout: float) -> int:
        waiting, self._open = self._open, []
        together = self.verdict([value for value, _ in waiting])
        for value, report in waiting:
            report(self.verdict([value]) if self.alone else together, self)
        return 0

    def partition(self) -> int | None:
        """Of each message: it never gets so far that one is chosen."""
        return None

    def purge(self) -> None:
        self._open = []

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self.probes += 1
        if not self.reachable:
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
        return SimpleNamespace(topics={}, brokers={1: "one"})
