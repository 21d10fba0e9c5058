"""Calls of the Kafka client that want care: what they take at once, and how long they may block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from consumer.intake.events import Found, Place
from consumer.intake.offset_metadata import LowMark, metadata_of
from consumer.intake.starting_points import ask_committed, place_of
from processing.logs import BoundLogger

AT_ONCE: Final = 32
"""Messages taken by one call. It makes objects of the headers of all of them before any can be
looked at, some 70 bytes each; calls for more take no less time."""
MANY_HEADERS: Final = 50_000
"""Headers after which a poll takes no more: their sizes have to be counted first."""


def take_rest(
    client: Callable[[], Consumer],
    most: int,
    headers: int,
    take: Callable[[list[Message]], int],
    before: Callable[[], None],
) -> bool:
    """Takes up to `most` messages that the client has already; whether there were no more.

    `client` is asked each time: what is taken may say that it failed, and have another one made.
    `headers` have been taken in this poll so far; `take` returns how many come with its messages;
    `before` is called before each call, which serves callbacks.
    """
    while most > 0 and headers < MANY_HEADERS:
        before()
        asked = min(most, AT_ONCE)
        messages = client().consume(asked, 0)
        headers += take(messages)
        if len(messages) < asked:
            return True
        most -= asked
    return False


def send_offsets(
    consumer: Consumer, offsets: Mapping[Place, int], token: str, marks: Mapping[Place, LowMark]
) -> None:
    """Sends a commit. Raises KafkaException where that can't be."""
    partitions = [
        TopicPartition(*place, offset, metadata_of(token, marks.get(place)))
        for place, offset in offsets.items()
    ]
    # Never synchronous: that would wait for the broker without a bound.
    consumer.commit(offsets=partitions, asynchronous=True)


def read_committed(
    consumer: Consumer, places: Sequence[Place], timeout: float, log: BoundLogger
) -> Found:
    """Committed offsets and their metadata; empty where nobody answers within `timeout` seconds."""
    partitions = ask_committed(consumer, places, timeout, log) or ()
    return {place_of(p): (p.offset, p.metadata) for p in partitions if p.error is None}
