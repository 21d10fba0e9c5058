"""One client of a group: it may be left behind, and says things while it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.errors import KafkaRefused
from consumer.intake.hearing import Hearing
from consumer.intake.kafka_log import ClientLog

P = ParamSpec("P")


class GroupClient:
    """A confluent-kafka consumer, and what it says as long as it is the one that is used."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        on_commit: Callable[[KafkaError | None, list[TopicPartition] | None], None],
        on_error: Callable[[KafkaError], None],
        on_connection_lost: Callable[[str], None],
        on_offset_reset: Callable[[str, int], None],
    ) -> None:
        """Raises KafkaRefused where librdkafka does not take the properties. Connects later."""
        self._hearing = Hearing()
        self.has_left = False
        """It has left the group. With KIP-848 whoever joins then has to be another client: this one
        would have the member id that it had, and also the epoch where the broker did not hear of it
        leaving, so that bytes of a commit that come late would count. A classic group gives it
        another member id, and it is connected already."""
        self.log = ClientLog(self.heard(on_connection_lost), self.heard(on_offset_reset))
        try:
            self.consumer = Consumer(
                {
                    **properties,
                    "on_commit": self.heard(on_commit),
                    "error_cb": self.heard(on_error),
                    "logger": self.log,
                }
            )
        except KafkaException as error:
            raise KafkaRefused(error.args[0].str()) from None

    def heard(self, callback: Callable[P, None]) -> Callable[P, None]:
        """The callback as the consumer gets it: it does nothing once the client is left."""
        return self._hearing.of(callback)

    def leave(self, end: Callable[[Consumer], None]) -> None:
        """Nobody hears of it any more. `end` must not wait for its brokers."""
        self._hearing.end()
        end(self.consumer)
