"""The consumer that a good engineer writes in an afternoon: one process of a group, by batches.

    python -m benchmarks.afternoon HANDLER wait|pipeline [poll]

Reads KAFKA, TOPIC, GROUP, DATABASE, REDIS, SCHEMA and PREFIX from the environment; ends at SIGTERM.
Up to 500 messages are one transaction: rows of new ids by one INSERT, the handler's own INSERT for
each of these, with or without libpq's pipeline mode; then COMMIT, statuses by a pipeline of SETs,
and the offsets. No worker processes, no time limits; a message that fails fails its batch. A batch
is waited for 50 ms; with `poll` it is what is there when its first message comes.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import orjson
from confluent_kafka import Consumer, Message

from benchmarks.afternoon_work import HEARTBEAT_MS, AfternoonWork, id_in

BATCH = 500
LONGEST = 0.05
"""Seconds that a batch is waited for."""


class Afternoon:
    """Reads, dedups, runs, tells."""

    def __init__(self, handler: str, *, pipeline: bool, at_once: bool) -> None:
        self._stopping = False
        self._at_once = at_once
        self._work = AfternoonWork(handler, pipeline=pipeline)
        self._consumer = Consumer(
            {
                "bootstrap.servers": os.environ["KAFKA"],
                "group.id": os.environ["GROUP"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self._stopping = True

    def run(self) -> None:
        """Until it is told to stop."""
        self._consumer.subscribe([os.environ["TOPIC"]])
        while not self._stopping:
            messages = [m for m in self._next() if m.error() is None]
            if messages:
                self._work.run(
                    {id_in(m.headers()): orjson.loads(m.value() or b"null") for m in messages}
                )
                self._consumer.commit(asynchronous=True)
        self._consumer.close()

    def _next(self) -> list[Message]:
        if not self._at_once:
            return self._consumer.consume(BATCH, LONGEST)
        first = self._consumer.poll(LONGEST)
        return [] if first is None else [first, *self._consumer.consume(BATCH - 1, 0)]


if __name__ == "__main__":
    more = sys.argv[2:]
    Afternoon(sys.argv[1], pipeline="pipeline" in more, at_once="poll" in more).run()
