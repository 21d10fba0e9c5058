"""arroyo: one consumer of a group, by batches or by messages.

    python -m benchmarks.frameworks.arroyo_app HANDLER batch|message|handoff

As its documentation has it: RunTask, then CommitOffsets once a second; BatchStep before it where it
works by batches. `handoff` does nothing with a message but count it. Ends at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from arroyo import Topic
from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import BatchStep, CommitOffsets, RunTask
from arroyo.processing.strategies.abstract import ProcessingStrategy, ProcessingStrategyFactory
from arroyo.types import Commit, Message, Partition

from benchmarks.afternoon_work import AfternoonWork, id_in
from benchmarks.tally import Tally

BATCH = 500
LONGEST = 0.05
"""Seconds that a batch is gathered at most, as the afternoon's consumer waits."""


class Steps(ProcessingStrategyFactory[KafkaPayload]):
    """The chain of steps for each assignment."""

    def __init__(self, function: Callable[[Message[Any]], Any], *, batch: bool) -> None:
        self._function = function
        self._batch = batch

    def create_with_partitions(
        self,
        commit: Commit,
        partitions: Mapping[Partition, int],  # noqa: ARG002 - as it is called
    ) -> ProcessingStrategy[KafkaPayload]:
        task: Any = RunTask(self._function, CommitOffsets(commit))
        return BatchStep(BATCH, LONGEST, task) if self._batch else task


def task_of(handler: str, way: str) -> Callable[[Message[Any]], Any]:
    """What is done with a message, or with a batch of them."""
    if way == "handoff":
        tally = Tally()
        return lambda _message: tally.add()
    work = AfternoonWork(handler)
    if way == "message":
        return lambda message: work.run(dict([_request(message.payload)]))
    return lambda message: work.run(dict(_request(one.payload) for one in message.payload))


def _request(payload: KafkaPayload) -> tuple[str, Any]:
    return id_in(payload.headers), orjson.loads(payload.value)


def main() -> None:
    handler, way = sys.argv[1:]
    consumer = KafkaConsumer(
        build_kafka_consumer_configuration(
            {},
            bootstrap_servers=[os.environ["KAFKA"]],
            group_id=os.environ["GROUP"],
            auto_offset_reset="earliest",
        )
    )
    processor = StreamProcessor(
        consumer, Topic(os.environ["TOPIC"]), Steps(task_of(handler, way), batch=way == "batch")
    )
    signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
    processor.run()


if __name__ == "__main__":
    main()
