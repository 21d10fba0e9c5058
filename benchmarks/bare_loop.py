"""A loop of confluent-kafka that reads each message's headers and does nothing with it.

    python -m benchmarks.bare_loop

Reads KAFKA, TOPIC and GROUP from the environment; commits after each batch, ends at SIGTERM.
"""

from __future__ import annotations

import os
import signal

from confluent_kafka import Consumer

from benchmarks.afternoon_work import id_in
from benchmarks.tally import Tally

BATCH = 500


def main() -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["GROUP"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    consumer.subscribe([os.environ["TOPIC"]])
    tally = Tally()
    while not ended:
        messages = [m for m in consumer.consume(BATCH, 0.05) if m.error() is None]
        for message in messages:
            id_in(message.headers())
        if messages:
            tally.add(len(messages))
            consumer.commit(asynchronous=True)
    consumer.close()


if __name__ == "__main__":
    main()
