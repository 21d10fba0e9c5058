"""arroyo: one consumer of a group, by batches or by messages.

    python -m benchmarks.frameworks.arroyo_app HANDLER batch|message|handoff
    python -m benchmarks.frameworks.arroyo_app HANDLER pool|tuned PROCESSES

As its documentation has it: RunTask, then CommitOffsets once a second; BatchStep before it where it
works by batches; RunTaskWithMultiprocessing instead of it where a pool does the work, `tuned` with
larger batches and blocks of memory that hold them. With `handoff`, `pool` and `tuned` nothing is
done with a message but that its id is read and it is counted. Ends at SIGTERM.
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
from arroyo.processing.strategies import (
    BatchStep,
    CommitOffsets,
    RunTask,
    RunTaskWithMultiprocessing,
)
from arroyo.processing.strategies.abstract import ProcessingStrategy, ProcessingStrategyFactory
from arroyo.processing.strategies.run_task_with_multiprocessing import MultiprocessingPool
from arroyo.types import Commit, Message, Partition

from benchmarks.afternoon_work import HEARTBEAT_MS, AfternoonWork, id_in
from benchmarks.tally import Tally

BATCH = 500
LONGEST = 0.05
"""Seconds that a batch is gathered at most, as the afternoon's consumer waits."""
LARGE = 4_000
"""Messages of a batch, and bytes of a block for one that goes to a process or comes back."""
INPUT_BLOCK, OUTPUT_BLOCK = 8 << 20, 4 << 20
_tallies: list[Tally] = []
_pools: list[MultiprocessingPool] = []
Chain = Callable[[ProcessingStrategy[Any]], ProcessingStrategy[KafkaPayload]]
"""The steps before a last one."""


class Steps(ProcessingStrategyFactory[KafkaPayload]):
    """The chain of steps for each assignment."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def create_with_partitions(
        self,
        commit: Commit,
        partitions: Mapping[Partition, int],  # noqa: ARG002 - as it is called
    ) -> ProcessingStrategy[KafkaPayload]:
        return self._chain(CommitOffsets(commit))

    def shutdown(self) -> None:
        for pool in _pools:
            pool.close()


def chain_of(handler: str, way: str, processes: int) -> Chain:
    """What is done with a message, or with a batch of them."""
    if way in ("pool", "tuned"):
        pool = MultiprocessingPool(processes, count_here)
        _pools.append(pool)
        size, given, got = (
            (BATCH, None, None) if way == "pool" else (LARGE, INPUT_BLOCK, OUTPUT_BLOCK)
        )
        return lambda last: RunTaskWithMultiprocessing(
            counted, last, max_batch_size=size, max_batch_time=LONGEST, pool=pool,
            input_block_size=given, output_block_size=got, prefetch_batches=True,
        )  # fmt: skip
    if way == "handoff":
        count_here()
        return lambda last: RunTask(counted, last)
    work = AfternoonWork(handler)
    if way == "message":
        return lambda last: RunTask(
            lambda message: work.run(dict([_request(message.payload)])), last
        )
    return lambda last: BatchStep(
        BATCH,
        LONGEST,
        RunTask(
            lambda message: work.run(dict(_request(one.payload) for one in message.payload)), last
        ),
    )


def count_here() -> None:
    """A tally of this process's own."""
    _tallies.append(Tally())


def counted(message: Message[KafkaPayload]) -> None:
    """Nothing, so that only the way is measured."""
    id_in(message.payload.headers)
    _tallies[0].add()


def _request(payload: KafkaPayload) -> tuple[str, Any]:
    return id_in(payload.headers), orjson.loads(payload.value)


def main() -> None:
    handler, way, *more = sys.argv[1:]
    consumer = KafkaConsumer(
        build_kafka_consumer_configuration(
            {},
            bootstrap_servers=[os.environ["KAFKA"]],
            group_id=os.environ["GROUP"],
            auto_offset_reset="earliest",
            override_params={"heartbeat.interval.ms": HEARTBEAT_MS},
        )
    )
    chain = chain_of(handler, way, int(more[0]) if more else 0)
    processor = StreamProcessor(consumer, Topic(os.environ["TOPIC"]), Steps(chain))
    signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
    processor.run()


if __name__ == "__main__":
    main()
