"""When the group's client is asked whether it still finds brokers."""

from __future__ import annotations

from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException

from consumer.intake.broker_watch import BrokerWatch
from consumer.intake.topic_watch import LOOKS, TopicWatch
from feedback.broker_contact import PAUSE, TIMEOUTS


class Topics:
    """A watch whose looks a test answers."""

    def __init__(self) -> None:
        self.answered = 0
        self.looked = 0

    def look_again(self) -> None:
        self.looked += 1


class Client:
    """A consumer that answers, or has lost its brokers."""

    def __init__(self) -> None:
        self.deaf = False
        self.asked: list[float] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked.append(timeout)
        if self.deaf:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.topics, self.client = Topics(), Client()
        self.watch = BrokerWatch(cast("TopicWatch", self.topics), lambda: self.now)

    def lost(self, looks: int = 0) -> bool:
        """After a pause in which others have found brokers so often."""
        self.now += PAUSE
        self.topics.answered += looks
        return self.watch.lost(cast("Consumer", self.client), "t")


def test_while_nobody_finds_a_broker_the_client_is_not_asked() -> None:
    watched = Watched()
    watched.client.deaf = True
    assert not watched.lost(looks=LOOKS)
    watched.watch.all_down()
    assert watched.topics.looked == 1
    assert not any(watched.lost() for _ in range(10))
    assert not watched.lost(looks=1)  # it may have been answered before they were down
    assert watched.client.asked == []


def test_who_finds_none_where_others_do_has_lost_them() -> None:
    watched = Watched()
    watched.client.deaf = True
    watched.watch.all_down()
    assert [watched.lost(looks=1) for _ in range(LOOKS + 2)] == [False, False, False, True]
    assert watched.client.asked == list(TIMEOUTS)


def test_who_answers_is_not_asked_again() -> None:
    watched = Watched()
    watched.watch.all_down()
    assert not any(watched.lost(looks=1) for _ in range(10))
    assert len(watched.client.asked) == 1
