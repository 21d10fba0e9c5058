"""The relay: a thread for each sender. Any number of relays may work side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from feedback.errors import ConfigurationError
from feedback.outbox.names import check_schema_name, schema_from_environment
from feedback.outbox.relay.database import Bounds
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.loop import LoopState, SenderLoop
from feedback.outbox.relay.turns import SEND_TIMEOUT

STOP_TIMEOUT: Final = SEND_TIMEOUT + 10.0
"""Seconds: a turn, and the brokers asked once."""


class Route(NamedTuple):
    """Where a sender's requests go."""

    topic: str
    kafka: Mapping[str, Any]
    """librdkafka's properties, `bootstrap.servers` among them."""


class Relay:
    """Sends what stands in an outbox until it is closed.

    Started and closed by `with`, or by start() and close(). What it leaves unsent, or had sent and
    not marked, the next one sends, under the same ids.
    """

    def __init__(
        self,
        database_url: str,
        routes: Mapping[str, Route],
        *,
        schema: str | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """`routes` are by the names of senders, `default` among them. Rows of others stay.

        `schema`: ONCEPOOL_OUTBOX_SCHEMA, or `oncepool_outbox`, unless given. Raises
        ConfigurationError.
        """
        if not routes:
            raise ConfigurationError("a relay needs a route for one sender at least")
        name = schema_from_environment() if schema is None else check_schema_name(schema)
        self._loops = [
            SenderLoop(
                database_url, name, sender, TopicSender(route.topic, route.kafka), bounds=bounds
            )
            for sender, route in routes.items()
        ]

    def start(self) -> Self:
        """Begins. Nothing has to be reachable yet."""
        for loop in self._loops:
            loop.start()
        return self

    def close(self, timeout: float = STOP_TIMEOUT) -> bool:
        """Ends after what is on its way; False where some thread has not ended in time."""
        for loop in self._loops:
            loop.stop()
        end = time.monotonic() + timeout
        ended = [loop.join(max(0.0, end - time.monotonic())) for loop in self._loops]
        return all(ended)

    def states(self) -> list[LoopState]:
        """How each sender is doing."""
        return [loop.state for loop in self._loops]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
