"""Where the client begins to read partitions that it was assigned: at their low marks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from consumer.intake.events import Place
from consumer.intake.offset_metadata import UnfinishedGap, gap_of
from processing.logs import BoundLogger

ASK_TIMEOUT: Final = 1.0
"""Seconds that the questions of one assignment may take, each kind of them."""
LEAST_TIME: Final = 0.05
"""Seconds that a question takes at least, or it is not asked."""


class StartingPoints(NamedTuple):
    """What was found of partitions."""

    partitions: list[TopicPartition]
    """Those that can be begun, with the offset to begin at; none where the reset policy says it."""
    gaps: dict[Place, UnfinishedGap]
    unknown: tuple[Place, ...]
    """The others: nobody could say where to begin."""


def place_of(partition: TopicPartition) -> Place:
    """As this program names a partition."""
    return partition.topic, partition.partition


def starting_points(
    consumer: Consumer,
    places: Sequence[Place],
    log: BoundLogger,
    *,
    reset: str,
    timeout: float = ASK_TIMEOUT,
) -> StartingPoints:
    """Asks for committed offsets; `reset` is the client's policy for an offset that is gone.

    Each kind of question may take `timeout` seconds. Called inside the callback of an assignment,
    too.
    """
    found, unknown = _committed(consumer, places, timeout, log)
    gaps = _gaps(found, log)
    if reset != "earliest":
        unknown += _clamp(_Beginnings(consumer, timeout), gaps, log)
    # The committed offset goes with its leader's epoch, as the log may be cut off at a failover.
    starts = [
        p if (gap := gaps.get(place_of(p))) is None else TopicPartition(*place_of(p), gap.mark)
        for p in found
        if place_of(p) not in unknown
    ]
    return _told(StartingPoints(starts, gaps, tuple(unknown)), log)


def name_left_out(consumer: Consumer, places: Sequence[Place], log: BoundLogger) -> None:
    """Says in the log what others had left to the next owner, where that reads nothing again.

    Whoever had the partition reads again, and has given up what it had not begun.
    """
    found, _ = _committed(consumer, places, ASK_TIMEOUT, log)
    for (topic, partition), gap in _gaps(found, log).items():
        log.error(
            "read_again is off here and was on where this partition was before: what was not"
            " finished there runs only where it is sent again",
            topic=topic, partition=partition, first=gap.mark, last=gap.committed - 1,
            at_most=gap.committed - gap.mark,
        )  # fmt: skip


def assign(consumer: Consumer, found: StartingPoints, *, eager: bool) -> None:
    """Takes what the group has assigned, inside its callback; what is unknown is paused.

    Without this the client would begin at the committed offsets.
    """
    # The client would ask for a committed offset itself, and give up where that is refused.
    unknown = [TopicPartition(*place, OFFSET_BEGINNING) for place in found.unknown]
    partitions = [*found.partitions, *unknown]
    (consumer.assign if eager else consumer.incremental_assign)(partitions)
    if unknown:
        consumer.pause(unknown)  # before anything of them can come


def seek(consumer: Consumer, found: StartingPoints, log: BoundLogger) -> StartingPoints:
    """Goes to where partitions begin that were unknown, and are paused; what it could not is."""
    partitions: list[TopicPartition] = []
    unknown = list(found.unknown)
    for at in found.partitions:
        try:
            consumer.seek(TopicPartition(at.topic, at.partition, at.offset))
        except KafkaException as error:
            log.warning("the client does not begin a partition", error=error.args[0].str())
            unknown.append(place_of(at))
        else:
            partitions.append(at)
    gaps = {place: gap for place, gap in found.gaps.items() if place not in unknown}
    return StartingPoints(partitions, gaps, tuple(unknown))


def ask_committed(
    consumer: Consumer, places: Sequence[Place], timeout: float, log: BoundLogger
) -> list[TopicPartition] | None:
    """Committed offsets and their metadata, or why not, of each; None where nobody answers."""
    try:
        return consumer.committed([TopicPartition(*place) for place in places], timeout)
    except KafkaException as error:
        log.warning("committed offsets not read", error=error.args[0].name())
        return None


def _committed(
    consumer: Consumer, places: Sequence[Place], timeout: float, log: BoundLogger
) -> tuple[list[TopicPartition], list[Place]]:
    """The committed offsets of partitions, and those of which they could not be read."""
    if not places:
        return [], []
    found = ask_committed(consumer, places, timeout, log)
    if found is None:
        return [], list(places)
    errors = {place_of(p): p.error.name() for p in found if p.error is not None}
    if errors:
        log.warning("committed offsets not read", n=len(errors), error=next(iter(errors.values())))
    return [p for p in found if p.error is None], list(errors)


def _gaps(found: Sequence[TopicPartition], log: BoundLogger) -> dict[Place, UnfinishedGap]:
    """What has to be read again of partitions whose committed offset is known."""
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
            gaps[place_of(p)] = gap
    return gaps


def _told(found: StartingPoints, log: BoundLogger) -> StartingPoints:
    if found.unknown:
        log.warning(
            "nobody can say where to begin in some partitions: they wait until somebody can",
            n=len(found.unknown), some=[f"{topic}/{n}" for topic, n in found.unknown[:10]],
        )  # fmt: skip
    for (topic, partition), gap in found.gaps.items():
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
    return found


class _Beginnings:
    """Where logs begin, asked of their leaders one by one.

    Of a partition without a leader that takes as long as it may. So each question may take half of
    what is left, and once next to nothing is left no more is asked.
    """

    def __init__(self, consumer: Consumer, timeout: float) -> None:
        """`timeout`: seconds that all questions together may take."""
        self._consumer = consumer
        self._end = time.monotonic() + timeout

    @property
    def over(self) -> bool:
        """There is no time left to ask."""
        return self._end - time.monotonic() < LEAST_TIME

    def of(self, topic: str, partition: int) -> int:
        """The first offset of a log. Raises KafkaException where nobody says."""
        # Not asked for the leaders first: `list_topics` ends the process inside a callback.
        half = max(LEAST_TIME, (self._end - time.monotonic()) / 2)
        low, _ = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), half)
        return int(low)


def _clamp(lows: _Beginnings, gaps: dict[Place, UnfinishedGap], log: BoundLogger) -> list[Place]:
    """Begins no gap below the log: the client would go to its end, or stop.

    Returns those of which that is not known; they are no gaps any more. First those that nobody was
    asked about, so that the next question begins with them.
    """
    unasked: list[Place] = []
    silent: list[Place] = []
    for (topic, partition), gap in list(gaps.items()):
        if lows.over:
            unasked.append((topic, partition))
            continue
        try:
            low = lows.of(topic, partition)
        except KafkaException as error:
            log.warning(
                "the beginning of a log is not known",
                topic=topic, partition=partition, error=error.args[0].name(),
            )  # fmt: skip
            silent.append((topic, partition))
            continue
        if low > gap.mark:
            log.warning(
                "the log begins behind the low mark: what lies between is gone",
                topic=topic, partition=partition, mark=gap.mark, low=low,
            )  # fmt: skip
            if low >= gap.committed:
                del gaps[topic, partition]
            else:
                gaps[topic, partition] = gap._replace(mark=low)
    unknown = unasked + silent
    for place in unknown:
        del gaps[place]
    return unknown
