"""Where a reader of result records begins, partition by partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from feedback.backoff import Backoff

_ANSWER: Final = 10.0
"""Seconds in which a broker has to answer."""
_HOPELESS: Final = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._FATAL,  # noqa: SLF001 - their public names
        KafkaError._AUTHENTICATION,  # noqa: SLF001
    }
)


def hopeless(error: KafkaError) -> bool:
    """Whether waiting does not help."""
    return error.fatal() or error.code() in _HOPELESS


class ResultPositions:
    """Of one reader. Where it starts is settled when it is made: what is written after that comes.

    A group that nothing was committed for begins where the first of its readers does, which commits
    that before it joins: it may die before its first record, and one that is made later may be
    assigned a partition first. A group with members takes no such commit; where they have made none
    either, whoever is assigned a partition commits its own start there. A partition without an
    offset that was not there then has been added since, and is read from its beginning; so is one
    of a group that stood somewhere when this reader came.
    """

    def __init__(
        self, consumer: Consumer, topic: str, *, grouped: bool, from_beginning: bool
    ) -> None:
        """`grouped`: what was read is committed. Raises KafkaException."""
        self._consumer = consumer
        self._topic = topic
        self._grouped = grouped
        self._handled: dict[int, int] = {}
        self._before: dict[int, int] = {}
        """Up to where it had come with the client before this one."""
        partitions = self._partitions()
        # Before it asks for the group's: of two that find none each has started before the other
        # commits, so that either commit is before all that comes once both are made.
        self._starts = {p.partition: self._start(p, from_beginning) for p in partitions}
        self._begins = self._is_new(partitions) if grouped else False
        """Nothing was committed for the group when this reader came; None: that is not known."""
        if self._begins:
            self._commit_starts()

    def handled(self, message: Message) -> None:
        """It goes on behind this one."""
        part, offset = message.partition(), message.offset()
        if part is not None and offset is not None:
            self._handled[part] = offset + 1

    def go_on(self, consumer: Consumer) -> None:
        """Another client takes over where this one has come to."""
        self._consumer = consumer
        if not self._grouped:
            self._starts |= {
                n: TopicPartition(self._topic, n, at) for n, at in self._handled.items()
            }
        self._before |= self._handled
        self._handled = {}

    @property
    def starts(self) -> list[TopicPartition]:
        """Where it starts in each partition that there was."""
        return list(self._starts.values())

    def of(self, assigned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Where to read on in partitions of the group's. Raises KafkaException."""
        committed = self._committed(self._partitions())
        if self._begins is None:
            self._begins = not committed
        begun = [
            self._starts[part.partition]
            for part in assigned
            if self._begins and part.partition not in committed and part.partition in self._starts
        ]
        if begun:
            self._consumer.commit(offsets=begun, asynchronous=False)
        offsets = {**{part.partition: part.offset for part in begun}, **committed}
        for number, offset in self._before.items():
            offsets[number] = max(offset, offsets.get(number, 0))
        self._before = {}
        return [
            TopicPartition(p.topic, p.partition, offsets.get(p.partition, OFFSET_BEGINNING))
            for p in assigned
        ]

    def _commit_starts(self) -> None:
        """A group that has members refuses: its first ones have done so, or do when assigned."""
        try:
            self._consumer.commit(offsets=self.starts, asynchronous=False)
        except KafkaException as error:
            if hopeless(error.args[0]):
                raise

    def _is_new(self, partitions: list[TopicPartition]) -> bool | None:
        """A cluster's first group waits here until there is a coordinator."""
        pauses, end = Backoff(0.05, 1.0), time.monotonic() + _ANSWER
        while True:
            try:
                return not self._committed(partitions)
            except KafkaException as error:
                if hopeless(error.args[0]):
                    raise
            if time.monotonic() > end:
                return None
            time.sleep(pauses.next())

    def _partitions(self) -> list[TopicPartition]:
        known = self._consumer.list_topics(self._topic, _ANSWER).topics[self._topic]
        if known.error is not None:
            raise KafkaException(known.error)
        return [TopicPartition(self._topic, number) for number in known.partitions]

    def _committed(self, partitions: list[TopicPartition]) -> dict[int, int]:
        """Where the group stands, as far as it stands anywhere."""
        found = self._consumer.committed(partitions, _ANSWER)
        if failed := [part.error for part in found if part.error is not None]:
            raise KafkaException(failed[0])
        return {part.partition: part.offset for part in found if part.offset >= 0}

    def _start(self, part: TopicPartition, from_beginning: bool) -> TopicPartition:
        low, high = self._consumer.get_watermark_offsets(part, _ANSWER)
        return TopicPartition(part.topic, part.partition, low if from_beginning else high)
