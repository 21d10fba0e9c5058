"""Whether the brokers answer, so that nobody waits for a confirmation that will not come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from consumer.admin.kafka_admin import (
    BrokerAdmin,
    KafkaUnreachable,
    TopicMissing,
    admin_client,
    metadata,
)
from consumer.config.settings import Settings
from feedback.client.event_loop import in_thread

WITHIN: Final = 2.0
"""Seconds in which a service has to answer a probe."""
KNOWN_FOR: Final = 2.0
"""Seconds for which it is known that they are away."""
SOON: Final = 0.5
"""Seconds that a request waits for a look, where they were away when they were last asked: those
that are back answer it within some milliseconds."""

Ask = Callable[[], Awaitable[object]]


class Brokers:
    """What is known of them: of probes, and of requests that they confirmed or did not."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        """`ask` raises KafkaUnreachable where they do not answer."""
        self._ask = ask
        self._clock = clock
        self._away = ""
        """Why they are thought to be away; nothing where they are not."""
        self._known_until = float("-inf")
        self._wait = WITHIN
        """Seconds that a request waits for a look: a probe has found them away, or a request that
        was not confirmed makes them suspect."""
        self._look: asyncio.Task[None] | None = None
        self._began = 0.0

    async def ask(self) -> None:
        """Probes them, once for all who ask meanwhile. Raises OncepoolError."""
        await asyncio.shield(self._looking())

    async def refuse_away(self) -> None:
        """Raises KafkaUnreachable where they are known to be away.

        Whoever comes when that is no news any more has them asked, and waits for it: SOON where a
        probe has found them away.
        """
        if not self._away:
            return
        if self._clock() >= self._known_until:
            look = self._looking()
            left = self._began + self._wait - self._clock()
            if left > 0:
                await asyncio.wait({look}, timeout=left)
        if self._away:
            raise KafkaUnreachable(f"{self._away}; nothing was sent")

    def confirmed(self) -> None:
        """They have confirmed a request."""
        self._away = ""

    def unconfirmed(self, why: str) -> None:
        """They have not: the next request has them asked before it is sent."""
        if not self._away:
            self._away, self._known_until, self._wait = why, float("-inf"), WITHIN

    def _looking(self) -> asyncio.Task[None]:
        """The look that is under way, or a new one."""
        if self._look is None or self._look.done():
            self._began = self._clock()
            self._look = asyncio.create_task(self._probe())
            self._look.add_done_callback(_heard)
        return self._look

    async def _probe(self) -> None:
        try:
            await self._ask()
        except KafkaUnreachable as error:
            self._away, self._known_until = str(error), self._clock() + KNOWN_FOR
            self._wait = SOON
            raise
        except TopicMissing:
            self._away = ""  # they answer, and may make it for the first request
            raise
        self._away = ""


def topic_probe(settings: Settings) -> Ask:
    """Asks the configured brokers for the topic. It raises KafkaUnreachable, TopicMissing."""
    admin: BrokerAdmin | None = None

    def look() -> None:
        nonlocal admin
        admin = admin or admin_client(settings)
        try:
            topics = metadata(admin, settings, WITHIN).topics
        except KafkaUnreachable:
            admin = None  # it may have forgotten its brokers for good
            raise
        if settings.send_topic not in topics:
            raise TopicMissing(f"topic {settings.send_topic} does not exist")

    async def ask() -> None:
        await in_thread(look)

    return ask


def _heard(look: asyncio.Task[None]) -> None:
    """Whoever asked may be gone: what it raised is no error that nobody looked at."""
    if not look.cancelled():
        look.exception()
