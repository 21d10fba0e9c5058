"""Where to begin in partitions that were assigned, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.intake import starting_points as module
from consumer.intake.events import Place
from consumer.intake.offset_metadata import MOST_TIMES, LowMark, UnfinishedGap, metadata_of
from consumer.intake.starting_points import (
    StartingPoints,
    name_left_out,
    seek,
    starting_points,
)


class Log:
    """Remembers errors."""

    def __init__(self) -> None:
        self.errors: list[dict[str, Any]] = []
        self.warnings: list[str] = []

    def info(self, _message: str, **_fields: Any) -> None:
        """Nothing to remember."""

    def warning(self, message: str, **_fields: Any) -> None:
        self.warnings.append(message)

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
    found = starting_points(group, places(range(3)), log, reset="earliest")

    assert [p.offset for p in found.partitions[:2]] == [6, 4]
    assert set(found.gaps) == {("t", 0), ("t", 1)}
    assert log.errors == [{"topic": "t", "partition": 0, "first": 6, "last": 7, "at_most": 2}]


def test_who_reads_nothing_again_names_what_it_leaves_out() -> None:
    log: Any = Log()
    group: Any = Group(LowMark(6, begun=8), LowMark(10))
    name_left_out(group, places(range(2)), log)
    assert log.errors == [{"topic": "t", "partition": 0, "first": 6, "last": 9, "at_most": 4}]


class Brokers(Group):
    """Some partitions have no leader, some committed offsets can't be read; time goes by."""

    def __init__(self, leaderless: set[int], unread: set[int], monkeypatch: Any) -> None:
        super().__init__(*[LowMark(6)] * 20)
        self.leaderless, self.unread = leaderless, unread
        self.now = 100.0
        self.asked: list[int] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.marks = (LowMark(6),) * len(partitions)
        found = super().committed(partitions, _timeout)
        refused: Any = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
        return [
            SimpleNamespace(topic=p.topic, partition=p.partition, offset=-1001, error=refused)
            if p.partition in self.unread
            else p
            for p in found
        ]  # type: ignore[misc]

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        self.asked.append(at.partition)
        if at.partition in self.leaderless:
            self.now += timeout
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return 0, 20


def places(numbers: Iterable[int]) -> list[Place]:
    return [("t", n) for n in numbers]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_only_partitions_that_nobody_answers_for_are_left_out(
    monkeypatch: pytest.MonkeyPatch, reset: str
) -> None:
    brokers: Any = Brokers({1}, {2}, monkeypatch)
    log: Any = Log()
    found = starting_points(brokers, places([0, 1, 2, 3]), log, reset=reset)
    leaderless = [] if reset == "earliest" else [1]
    assert found.unknown == tuple(("t", n) for n in [2, *leaderless])
    begun = [0, *([1] if reset == "earliest" else []), 3]
    assert [(p.partition, p.offset) for p in found.partitions] == [(n, 6) for n in begun]
    assert set(found.gaps) == {("t", n) for n in begun}
    assert log.warnings


def test_partitions_without_a_leader_take_a_second_and_those_behind_them_are_asked_first_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers: Any = Brokers(set(range(12)), set(), monkeypatch)
    log: Any = Log()
    found = starting_points(brokers, places(range(14)), log, reset="latest")
    assert brokers.now - 100.0 <= module.ASK_TIMEOUT
    assert len(brokers.asked) < 6, "the others would have to wait for each of them"
    assert found.partitions == []
    for _ in range(4):
        found = starting_points(brokers, found.unknown, log, reset="latest")
        if found.partitions:
            break
    assert {p.partition for p in found.partitions} == {12, 13}


def test_where_nothing_is_answered_all_is_unknown() -> None:
    class Away:
        def committed(self, *_: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    away: Any = Away()
    log: Any = Log()
    found = starting_points(away, places([0, 1]), log, reset="earliest")
    assert found == ([], {}, (("t", 0), ("t", 1)))
    assert starting_points(away, [], log, reset="earliest") == ([], {}, ())


def test_what_the_client_does_not_begin_stays_unknown() -> None:
    class Client:
        def __init__(self) -> None:
            self.at: list[tuple[int, int]] = []

        def seek(self, at: TopicPartition) -> None:
            if at.partition == 1:
                raise KafkaException(KafkaError(KafkaError._STATE))
            self.at.append((at.partition, at.offset))

    client: Any = Client()
    log: Any = Log()
    gaps = {("t", n): UnfinishedGap(6, 10) for n in (0, 1)}
    at = [TopicPartition("t", 0, 6), TopicPartition("t", 1, 6), TopicPartition("t", 2, -1001)]
    found = seek(client, StartingPoints(at, gaps, (("t", 3),)), log)
    assert client.at == [(0, 6), (2, -1001)]
    assert found.unknown == (("t", 3), ("t", 1))
    assert (set(found.gaps), [p.partition for p in found.partitions]) == ({("t", 0)}, [0, 2])
