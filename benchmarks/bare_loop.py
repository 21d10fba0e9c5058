"""A loop of confluent-kafka that reads each message's headers and does nothing with it.

    python -m benchmarks.bare_loop poll|consume

By one message a call, as its documentation begins, or by up to 500. Reads KAFKA, TOPIC and GROUP
from the environment; commits after each batch of 500 or less, ends at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

from confluent_kafka import Consumer, Message

from benchmarks.afternoon_work import HEARTBEAT_MS, id_in
from benchmarks.tally import Tally

BATCH = 500
LONGEST = 0.05
"""Seconds that a batch is waited for."""


def main() -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["GROUP"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    )
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    consumer.subscribe([os.environ["TOPIC"]])
    tally = Tally()
    while not ended:
        done = 0
        for message in by_one(consumer) if sys.argv[1] == "poll" else by_many(consumer):
            id_in(message.headers())
            done += 1
        if done:
            tally.add(done)
            consumer.commit(asynchronous=True)
    consumer.close()


def by_many(consumer: Consumer) -> Iterator[Message]:
    """Up to BATCH of one call."""
    return (m for m in consumer.consume(BATCH, LONGEST) if m.error() is None)


def by_one(consumer: Consumer) -> Iterator[Message]:
    """Up to BATCH, each of a call of its own, until none comes."""
    for _ in range(BATCH):
        message = consumer.poll(LONGEST)
        if message is None:
            return
        if message.error() is None:
            yield message


if __name__ == "__main__":
    main()
