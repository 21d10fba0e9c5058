"""Ready is a gateway whose requests are taken, not one whose services merely answer."""

from __future__ import annotations

import asyncio
from typing import Any

from consumer.config.settings import Settings
from consumer.gateway.readiness import Neighbour, Readiness, probers
from tests.support.gateway import GatewayBench


class Database:
    """One that takes writes and has no tables."""

    async def run(self, work: Any, timeout: float, *, again: bool) -> Any:
        return work(self)

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        self.asked = statement
        return self

    def fetchone(self) -> Any:
        return ("off",) if self.asked.startswith("SHOW") else None


def test_an_outbox_without_tables_is_not_ready_and_says_what_to_do() -> None:
    bench = GatewayBench()
    database: Any = Database()
    settings = Settings(gateway_outbox=True, outbox_schema="shop")

    async def play() -> list[Neighbour]:
        client: Any = bench.parts.client
        return await Readiness(probers(settings, client, bench.brokers, database, database)).look()

    outbox, journal, _ = asyncio.run(play())
    assert (outbox.name, outbox.ok, outbox.needed) == ("outbox", False, True)
    assert "shop" in outbox.detail
    assert "oncepool outbox migrate" in outbox.detail
    assert (journal.name, journal.ok) == ("database", True)
