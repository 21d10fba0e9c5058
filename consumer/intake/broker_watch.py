"""Whether the group's client still finds brokers where others do."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from consumer.intake.topic_watch import LOOKS, TopicWatch
from feedback.broker_contact import BrokerContact


class BrokerWatch:
    """The watch on topics looks through clients of its own: it says when others find brokers.

    For the thread that owns the client.
    """

    def __init__(self, topics: TopicWatch, clock: Callable[[], float]) -> None:
        self._topics = topics
        self._contact = BrokerContact(clock)
        self._found_at = 0
        """Of the watch's answers: with so many, others found brokers since all were down."""

    def all_down(self) -> None:
        """The client has said that all brokers are down."""
        self._contact.all_down()
        # The first answer may have been on its way before.
        self._found_at = self._topics.answered + LOOKS
        self._topics.look_again()

    def lost(self, consumer: Consumer, topic: str) -> bool:
        """Asks the client where it is time, two seconds at most. Whether it has lost them."""
        if not self._contact.doubtful or self._topics.answered < self._found_at:
            return False
        timeout = self._contact.due()
        if timeout is None:
            return False
        try:
            consumer.list_topics(topic, timeout)
        except KafkaException:
            return self._contact.asked(answered=False)
        return self._contact.asked(answered=True)
