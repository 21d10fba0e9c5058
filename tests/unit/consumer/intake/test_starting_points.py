"""Where to begin in partitions that were assigned, and what is said of it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import TopicPartition

from consumer.intake.offset_metadata import MOST_TIMES, LowMark, metadata_of
from consumer.intake.starting_points import starting_points


class Log:
    """Remembers errors."""

    def __init__(self) -> None:
        self.errors: list[dict[str, Any]] = []

    def info(self, _message: str, **_fields: Any) -> None:
        """Nothing to remember."""

    def error(self, _message: str, **fields: Any) -> None:
        self.errors.append(fields)


class Group:
    """A consumer that knows committed offsets."""

    def __init__(self, *marks: LowMark) -> None:
        self.marks = marks

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return [
            TopicPartition(p.topic, p.partition, 10, metadata_of("1;other-1;", mark))
            for p, mark in zip(partitions, self.marks, strict=True)
        ]


def test_a_gap_that_its_owners_died_over_is_named_before_some_is_given_up() -> None:
    log: Any = Log()
    group: Any = Group(LowMark(6, MOST_TIMES + 1), LowMark(4, MOST_TIMES - 1), LowMark(10))
    partitions = [TopicPartition("t", n) for n in range(3)]
    found = starting_points(group, partitions, log, reset="earliest")

    assert [p.offset for p in found.partitions[:2]] == [6, 4]
    assert set(found.gaps) == {("t", 0), ("t", 1)}
    assert log.errors == [{"topic": "t", "partition": 0, "first": 6, "last": 7, "at_most": 2}]
