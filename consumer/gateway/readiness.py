"""Whether the gateway can take requests, and what else of its neighbours answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from consumer.config.masking import mask_url
from consumer.config.settings import Settings
from consumer.gateway.brokers import WITHIN, Brokers
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.database_jobs import refuse_read_only
from feedback.client.async_client import AsyncClient
from feedback.errors import OncepoolError
from feedback.outbox.checks import refuse_closed
from feedback.postgres import Connection

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


def probers(
    settings: Settings,
    client: AsyncClient,
    brokers: Brokers,
    journal: DatabaseThreads | None,
    outbox: DatabaseThreads | None,
) -> list[Prober]:
    """Those of the services of the settings."""
    found: list[Prober] = []
    if outbox is None:
        found.append(Prober("kafka", needed=True, ask=brokers.ask))
    else:

        def takes_requests(connection: Connection) -> None:
            refuse_read_only(connection)
            refuse_closed(connection, settings.outbox_schema)

        found.append(Prober("outbox", needed=True, ask=lambda: _ask(outbox, takes_requests)))
    if journal is not None:
        found.append(Prober("database", needed=False, ask=lambda: _ask(journal, refuse_read_only)))
    found.append(Prober("redis", needed=False, ask=lambda: client.statuses([_PROBED])))
    return found


async def _ask(threads: DatabaseThreads, look: Callable[[Connection], None]) -> object:
    return await threads.run(look, WITHIN, again=True)


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
