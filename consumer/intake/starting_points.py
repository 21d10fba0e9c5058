"""Where the client begins to read partitions that it was assigned: at their low marks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from consumer.intake.events import Place
from consumer.intake.offset_metadata import UnfinishedGap, gap_of
from processing.logs import BoundLogger

ASK_TIMEOUT: Final = 1.0
"""Seconds that the questions of one assignment may take, each kind of them."""


class StartingPoints(NamedTuple):
    """What was found of partitions."""

    partitions: list[TopicPartition]
    """With the offsets to begin at; without one where the client finds it by itself."""
    gaps: dict[Place, UnfinishedGap]
    asked: bool
    """False: nobody has answered."""


def starting_points(
    consumer: Consumer, partitions: Sequence[TopicPartition], log: BoundLogger, *, reset: str
) -> StartingPoints:
    """Asks for committed offsets; `reset` is the client's policy for an offset that is gone.

    Called inside the callback of an assignment.
    """
    plain = [TopicPartition(p.topic, p.partition) for p in partitions]
    if not plain:
        return StartingPoints([], {}, asked=True)
    try:
        found = consumer.committed(plain, ASK_TIMEOUT)
    except KafkaException as error:
        log.warning("committed offsets not read", error=error.args[0].name())
        return StartingPoints(plain, {}, asked=False)
    if any(p.error is not None for p in found):
        return StartingPoints(plain, {}, asked=False)
    gaps: dict[Place, UnfinishedGap] = {}
    for p in found:
        try:
            gap = gap_of(p.offset, p.metadata)
        except ValueError as error:
            log.warning(
                "nothing is read again: the low mark makes no sense",
                topic=p.topic, partition=p.partition, committed=p.offset, error=str(error),
            )  # fmt: skip
            continue
        if gap is not None:
            gaps[p.topic, p.partition] = gap
    if reset != "earliest" and not _clamp(consumer, gaps, log):
        return StartingPoints(plain, {}, asked=False)
    _tell(gaps, log)
    starts = [
        TopicPartition(p.topic, p.partition, gap.mark)
        if (gap := gaps.get((p.topic, p.partition))) is not None
        else TopicPartition(p.topic, p.partition)
        for p in partitions
    ]
    return StartingPoints(starts, gaps, asked=True)


def _tell(gaps: dict[Place, UnfinishedGap], log: BoundLogger) -> None:
    for (topic, partition), gap in gaps.items():
        log.info(
            "reading again what was not finished",
            topic=topic, partition=partition, mark=gap.mark, committed=gap.committed,
            times=gap.times,
        )  # fmt: skip
        if gap.worn_to > gap.mark:
            log.error(
                "owners of this partition died one after the other before its first unfinished"
                " request ended: what is left of these is given up if this one dies, too, and runs"
                " only where it is sent again",
                topic=topic, partition=partition, first=gap.mark, last=gap.worn_to - 1,
                at_most=gap.worn_to - gap.mark,
            )  # fmt: skip


def _clamp(consumer: Consumer, gaps: dict[Place, UnfinishedGap], log: BoundLogger) -> bool:
    """Begins no gap below the log: the client would go to its end, or stop. False: not known."""
    end = time.monotonic() + ASK_TIMEOUT
    for (topic, partition), gap in list(gaps.items()):
        try:
            low, _ = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), max(0.1, end - time.monotonic())
            )
        except KafkaException as error:
            log.warning("the beginning of a log is not known", error=error.args[0].name())
            return False
        if low > gap.mark:
            log.warning(
                "the log begins behind the low mark: what lies between is gone",
                topic=topic, partition=partition, mark=gap.mark, low=low,
            )  # fmt: skip
            if low >= gap.committed:
                del gaps[topic, partition]
            else:
                gaps[topic, partition] = gap._replace(mark=low)
    return True
