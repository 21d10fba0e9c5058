"""Whether the gateway can take requests, and what else of its neighbours answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from consumer.admin.kafka_admin import BrokerAdmin, KafkaUnreachable, admin_client, metadata
from consumer.config.masking import mask_url
from consumer.config.settings import Settings
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.database_jobs import refuse_read_only
from feedback.client.async_client import AsyncClient
from feedback.client.event_loop import in_thread
from feedback.errors import OncepoolError

WITHIN: Final = 2.0
KEPT: Final = 2.0
"""Seconds for which an answer is given again: probes of many cost as much as one's."""
_PROBED: Final = "oncepool-readyz"


class Neighbour(NamedTuple):
    """One service. `needed`: without it nothing can be taken."""

    name: str
    ok: bool
    needed: bool
    detail: str = ""


class Prober(NamedTuple):
    """How a service is tried; raises OncepoolError where it does not answer."""

    name: str
    needed: bool
    ask: Callable[[], Awaitable[object]]


class Probes:
    """The services of the settings."""

    def __init__(
        self,
        settings: Settings,
        client: AsyncClient,
        journal: DatabaseThreads | None,
        outbox: DatabaseThreads | None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._admin: BrokerAdmin | None = None
        self.all: list[Prober] = []
        if outbox is None:
            self.all.append(Prober("kafka", needed=True, ask=self._ask_kafka))
        else:
            self.all.append(Prober("outbox", needed=True, ask=lambda: _ask(outbox)))
        if journal is not None:
            self.all.append(Prober("database", needed=False, ask=lambda: _ask(journal)))
        self.all.append(Prober("redis", needed=False, ask=lambda: self._client.statuses([_PROBED])))

    async def _ask_kafka(self) -> None:
        await in_thread(self._metadata)

    def _metadata(self) -> None:
        if self._admin is None:
            self._admin = admin_client(self._settings)
        try:
            topics = metadata(self._admin, self._settings, WITHIN).topics
        except KafkaUnreachable:
            self._admin = None  # it may have forgotten its brokers for good
            raise
        if self._settings.send_topic not in topics:
            raise KafkaUnreachable(f"topic {self._settings.send_topic} does not exist")


async def _ask(threads: DatabaseThreads) -> object:
    return await threads.run(refuse_read_only, WITHIN, again=True)


class Readiness:
    """Asks them all at once, and not more often than it has to."""

    def __init__(
        self, probes: Sequence[Prober], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._probes = probes
        self._clock = clock
        self._asked: asyncio.Task[list[Neighbour]] | None = None
        self._until = float("-inf")

    async def look(self) -> list[Neighbour]:
        """Each of them, not older than KEPT seconds."""
        now = self._clock()
        if self._asked is None or (self._asked.done() and now >= self._until):
            self._until = now + KEPT
            self._asked = asyncio.create_task(self._ask_all())
        return await asyncio.shield(self._asked)

    async def _ask_all(self) -> list[Neighbour]:
        return list(await asyncio.gather(*map(_looked_at, self._probes)))


async def _looked_at(prober: Prober) -> Neighbour:
    said: Any = ""
    try:
        async with asyncio.timeout(WITHIN + 1):
            await prober.ask()
    except TimeoutError:
        said = f"no answer within {WITHIN:g} s"
    except OncepoolError as error:
        said = mask_url(str(error))
    return Neighbour(prober.name, not said, prober.needed, said)
