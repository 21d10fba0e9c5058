"""A group that gives its member up again and again, without a broker."""

from __future__ import annotations

import struct
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from consumer.config.settings import Settings
from consumer.intake import group_client, joining
from consumer.intake.events import Answered, Assigned, JoinedAnew, Revoked, Trouble
from consumer.intake.joining import CALM, LONGEST_SESSION, JoinPause
from consumer.intake.kafka import Kafka
from processing.logs import get_logger
from tests.support.waiting import eventually


def given_up(code: int = KafkaError.INVALID_REQUEST) -> Message:
    """What a client says that has given up its membership."""
    cause = KafkaError(code).str()
    said = KafkaError(KafkaError._FATAL, f"ConsumerGroupHeartbeat: {cause}", True)
    return Message("t", error=said)


class Client:
    """A consumer that says what it is told to."""

    made: list[Client]
    answered: Event
    """Its broker answers: nothing ends before."""

    def __init__(self, _properties: dict[str, Any]) -> None:
        self.made.append(self)
        self.messages: list[Any] = []
        self.calls: list[str] = []
        self.member_id = ""

    def consumer_group_metadata(self) -> bytes:
        generation = 1 if self.member_id else -1
        return struct.pack("=7si", b"CGMDv2:", generation) + f"g\0{self.member_id}\0".encode()

    def subscribe(self, _topics: list[str], **_: Any) -> None:
        self.calls.append("subscribe")

    def unsubscribe(self) -> None:
        self.calls.append("unsubscribe")

    def close(self) -> None:
        assert self.answered.wait(60)
        self.calls.append("close")

    def poll(self, _timeout: float) -> Any:
        return self.messages.pop(0) if self.messages else None


class Edge:
    """A Kafka with such clients, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        given: Any = {"kafka_topics": ["t"], "read_again": False}
        settings = Settings(kafka_bootstrap_servers="127.0.0.1:1", **given)
        self.kafka = Kafka(settings, get_logger("test"), lambda: self.now)
        self.kafka.subscribe()

    def give_up(self) -> list[Any]:
        """The present client's membership ends; what a poll says of that."""
        self.kafka._on_assign(None, [])  # type: ignore[arg-type]
        self.kafka._owned = {("t", 0)}
        Client.made[-1].messages.append(given_up())
        return [type(event) for event in self.kafka.poll(1, 0.0)]

    def joins_after(self) -> float:
        """Seconds, in tenths, until the present client joins."""
        begun = self.now
        while Client.made[-1].calls != ["subscribe"]:
            assert self.now < begun + 60
            self.now += 0.1
            self.kafka.poll(1, 0.0)
        return self.now - begun


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Edge:
    Client.made, Client.answered = [], Event()
    Client.answered.set()
    monkeypatch.setattr(group_client, "Consumer", Client)
    monkeypatch.setattr(joining.JoinPause.__init__, "__defaults__", (lambda: 1.0,))
    made = Edge()
    made.kafka._topics.close()
    return made


def test_a_group_is_joined_anew_after_pauses_that_grow(edge: Edge) -> None:
    assert Client.made[0].calls == ["subscribe"]
    pauses = []
    for _ in range(7):
        assert JoinedAnew in edge.give_up()
        assert edge.kafka._owned == set()
        pauses.append(round(edge.joins_after()))
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    edge.now += CALM
    assert Revoked in edge.give_up()
    assert round(edge.joins_after()) == 1


def test_a_membership_that_is_lost_is_told_before_what_else_comes_of_it(edge: Edge) -> None:
    """An answer of the same poll is read back by the next client, in the next membership; what was
    on its way on a connection that broke is void there."""
    edge.kafka._on_commit(None, [])
    edge.kafka._connection_lost("broke")
    assert edge.give_up() == [JoinedAnew, Answered, Assigned, Revoked]


def test_who_was_a_member_once_joins_again_also_where_the_next_client_never_is(edge: Edge) -> None:
    edge.give_up()
    for pause in (1, 2, 4):
        assert round(edge.joins_after()) == pause
        Client.made[-1].messages.append(given_up(KafkaError.GROUP_ID_NOT_FOUND))
        assert [type(event) for event in edge.kafka.poll(1, 0.0)] == [JoinedAnew]


def test_a_member_without_partitions_keeps_to_the_protocol_that_it_has_joined_with(
    edge: Edge,
) -> None:
    Client.made[-1].member_id = "here"
    assert edge.kafka.member
    Client.made[-1].messages.append(given_up(KafkaError.GROUP_ID_NOT_FOUND))
    assert [type(event) for event in edge.kafka.poll(1, 0.0)] == [JoinedAnew]
    assert edge.kafka.protocol == "consumer"


def test_who_never_was_a_member_takes_the_classic_protocol(edge: Edge) -> None:
    Client.made[-1].messages.append(given_up(KafkaError.GROUP_ID_NOT_FOUND))
    assert list(edge.kafka.poll(1, 0.0)) == []
    assert edge.kafka.protocol == "classic"


def test_who_leaves_during_the_pause_does_not_join(edge: Edge) -> None:
    edge.give_up()
    edge.kafka.unsubscribe()
    edge.now += 100
    edge.kafka.poll(1, 0.0)
    assert Client.made[-1].calls == ["unsubscribe"]
    edge.kafka.subscribe()
    assert Client.made[-1].calls == ["subscribe"]

    edge.give_up()
    edge.kafka.subscribe()
    assert Client.made[-1].calls == []


def test_who_leaves_and_joins_again_is_another_member(edge: Edge) -> None:
    edge.kafka.unsubscribe()
    first = Client.made[-1]
    edge.kafka.poll(1, 0.0)
    assert Client.made[-1] is first
    for _ in range(2):  # the second time there is nothing to leave
        edge.kafka.subscribe()
        assert len(Client.made) == 2
        assert Client.made[-1] is not first
    eventually(lambda: first.calls == ["subscribe", "unsubscribe", "close"])


def test_a_client_that_is_replaced_is_not_waited_for(edge: Edge) -> None:
    """Its broker may not answer any more: closing it takes as long as it waits for that."""
    first, Client.answered = Client.made[-1], Event()
    try:
        assert JoinedAnew in edge.give_up()
        assert Client.made[-1] is not first
        assert "close" not in first.calls
    finally:
        Client.answered.set()
    eventually(lambda: "close" in first.calls)


def test_a_name_that_the_old_client_still_holds_is_waited_for_as_long_as_a_session_lasts(
    edge: Edge,
) -> None:
    edge.kafka._joined()
    begun = edge.now
    while True:
        Client.made[-1].messages.append(given_up(KafkaError.UNRELEASED_INSTANCE_ID))
        [said] = edge.kafka.poll(1, 0.0)
        if not isinstance(said, JoinedAnew):
            break
        edge.joins_after()
    assert isinstance(said, Trouble)
    assert said.ends_service
    assert LONGEST_SESSION <= edge.now - begun < LONGEST_SESSION + 31

    # Hours later it is another membership.
    edge.now += 10_000
    Client.made[-1].messages.append(given_up(KafkaError.UNRELEASED_INSTANCE_ID))
    assert [type(event) for event in edge.kafka.poll(1, 0.0)] == [JoinedAnew]


def test_many_do_not_come_back_in_step() -> None:
    pauses = {JoinPause(lambda: 0.0).begin() for _ in range(10)}
    assert len(pauses) > 1
    assert all(0.5 <= pause <= 1.0 for pause in pauses)
