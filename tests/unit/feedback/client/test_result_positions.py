"""Where readers of result records begin that come at the same time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from feedback.client import result_source
from feedback.client.result_positions import ResultPositions
from feedback.client.results import Results
from feedback.errors import ResultsFailed


class Broker:
    """A topic, and what one group has committed."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.committed: dict[int, int] = {}
        self.seen: dict[int, int] | None = None
        """What everybody is told of the commits, whatever has come since."""
        self.members: list[Member] = []
        self.told: Callable[[], object] = lambda: None
        """Called when somebody has been told of the commits."""


class Member:
    """A client of the group."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.failing: KafkaError | None = None
        self.assigned: list[TopicPartition] = []
        self.callbacks: dict[str, Any] = {}

    def list_topics(self, topic: str, _timeout: float) -> Any:
        known = SimpleNamespace(error=None, partitions=dict.fromkeys(range(len(self.broker.ends))))
        return SimpleNamespace(topics={topic: known})

    def get_watermark_offsets(self, part: TopicPartition, _timeout: float) -> tuple[int, int]:
        return 0, self.broker.ends[part.partition]

    def committed(self, parts: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        if self.failing is not None:
            raise KafkaException(self.failing)
        broker = self.broker
        known = broker.committed if broker.seen is None else broker.seen
        found = [TopicPartition(p.topic, p.partition, known.get(p.partition, -1001)) for p in parts]
        told, broker.told = broker.told, lambda: None
        told()
        return found

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        if self.broker.members and self not in self.broker.members:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
        self.broker.committed.update({part.partition: part.offset for part in offsets})

    def assign(self, parts: list[TopicPartition]) -> None:
        self.assigned = parts

    def assignment(self) -> list[TopicPartition]:
        return self.assigned

    def subscribe(self, _topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def poll(self, _timeout: float) -> None:
        return None

    def close(self) -> None: ...


def reader(broker: Broker, **options: bool) -> ResultPositions:
    member: Any = Member(broker)
    return ResultPositions(member, "t", grouped=True, **{"from_beginning": False, **options})


def begins(positions: ResultPositions, *partitions: int) -> dict[int, int]:
    member: Any = positions._consumer
    member.broker.members.append(member)
    found = positions.of([TopicPartition("t", number) for number in partitions])
    return {part.partition: part.offset for part in found}


def test_a_group_begins_where_its_first_reader_does_whoever_is_assigned_first() -> None:
    broker = Broker(5, 5)
    first = reader(broker)
    broker.ends = [9, 9]
    second = reader(broker)
    assert begins(second, 1) == {1: 5}
    assert begins(first, 0) == {0: 5}
    broker.ends.append(3)
    assert begins(second, 2) == {2: OFFSET_BEGINNING}, "it was added since"
    assert broker.committed == {0: 5, 1: 5}


def test_what_comes_after_a_reader_was_made_is_before_no_commit_of_another() -> None:
    broker = Broker(5, 5)

    def first() -> None:
        reader(broker)
        broker.ends = [9, 9]

    broker.told = first
    second = reader(broker)
    assert begins(second, 0, 1) == {0: 5, 1: 5}


def test_readers_of_a_group_with_members_leave_each_others_starts() -> None:
    broker = Broker(5, 5)
    broker.members = [Member(broker)]
    first = reader(broker)
    broker.ends = [9, 9]
    second = reader(broker)
    broker.seen = {}  # both ask before one of them commits
    assert begins(first, 0) == {0: 5}
    assert begins(second, 1) == {1: 9}
    assert broker.committed == {0: 5, 1: 9}
    broker.seen = None
    assert begins(first, 0, 1) == {0: 5, 1: 9}


def test_what_a_reader_died_before_is_begun_by_who_began_with_it() -> None:
    broker = Broker(5, 5)
    broker.members = [Member(broker)]
    first, _dies = reader(broker), reader(broker)
    assert begins(first, 0) == {0: 5}
    later = reader(broker)
    assert begins(later, 1) == {1: OFFSET_BEGINNING}, "rather twice than not at all"
    assert begins(first, 0, 1) == {0: 5, 1: 5}


@pytest.mark.parametrize("hopeless", [False, True])
def test_a_reader_that_was_in_trouble_reads_on(
    monkeypatch: pytest.MonkeyPatch, hopeless: bool
) -> None:
    monkeypatch.setattr(result_source, "_PAUSE", 0.0)
    broker = Broker(5)
    member = Member(broker)
    monkeypatch.setattr(result_source, "connect", lambda *_: member)
    reading = Results({}, "t", "group", from_beginning=False, closed=lambda _: None)
    code = KafkaError.GROUP_AUTHORIZATION_FAILED if hopeless else KafkaError._TIMED_OUT
    member.failing = KafkaError(code)
    member.callbacks["on_assign"](member, [TopicPartition("t", 0)])
    assert member.assigned == [], "the client would begin somewhere else"
    for _ in range(2):
        if hopeless:
            with pytest.raises(ResultsFailed):
                reading.poll(0.0)
        else:
            assert reading.poll(0.0) is None
    member.failing = None
    assert reading.poll(0.0) is None
    assert [(part.partition, part.offset) for part in member.assigned] == [(0, 5)]
    assert reading.poll(0.0) is None
    reading.close()


def test_what_was_revoked_is_not_asked_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_source, "_PAUSE", 0.0)
    member = Member(Broker(5))
    monkeypatch.setattr(result_source, "connect", lambda *_: member)
    reading = Results({}, "t", "group", from_beginning=False, closed=lambda _: None)
    member.failing = KafkaError(KafkaError._TIMED_OUT)
    member.callbacks["on_assign"](member, [TopicPartition("t", 0)])
    member.callbacks["on_revoke"](member, [])
    member.failing = None
    assert reading.poll(0.0) is None
    assert member.assigned == []
    reading.close()


def test_a_reader_that_has_to_go_back_reads_nowhere_until_it_is_known_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(result_source, "_PAUSE", 0.0)
    member = Member(Broker(5))
    monkeypatch.setattr(result_source, "connect", lambda *_: member)
    reading = Results({}, "t", "group", from_beginning=False, closed=lambda _: None)
    member.callbacks["on_assign"](member, [TopicPartition("t", 0)])
    reading.poll(0.0)
    assert len(member.assigned) == 1
    reading.come_again()
    member.failing = KafkaError(KafkaError._TIMED_OUT)
    reading.poll(0.0)
    assert member.assigned == []
    member.failing = None
    reading.poll(0.0)
    assert [(part.partition, part.offset) for part in member.assigned] == [(0, 5)]
    reading.close()
