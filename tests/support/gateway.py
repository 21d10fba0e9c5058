"""The gateway without services: its statuses, its journal and its brokers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from consumer.admin.journal import JournalUnreachable
from consumer.admin.kafka_admin import KafkaUnreachable
from consumer.config.gateway_keys import GatewayKey, hash_of
from consumer.config.settings import Settings
from consumer.gateway.access import Access
from consumer.gateway.app import create_app
from consumer.gateway.brokers import Brokers
from consumer.gateway.operators import OperatorAnswer
from consumer.gateway.parts import GatewayParts
from consumer.gateway.readiness import Prober, Readiness
from consumer.gateway.sending import KafkaSender
from consumer.gateway.statuses import Statuses
from feedback.client.async_client import AsyncClient
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.errors import OncepoolError
from feedback.operations.dead_letters import DeadLetterRef, Kind
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By, Resolution, ResultRefused
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import Status, StatusFields, StatusWrite
from tests.support.client import FakeProducer

T = TypeVar("T")
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEY = "a-key-of-forty-characters-for-tests-only"


def key(
    *roles: Any, token: str = KEY, types: Sequence[str] = ("*",), rate: float | None = None
) -> Any:
    """An API key as the configuration has it."""
    return GatewayKey(hash=hash_of(token), roles=list(roles), types=list(types), rate=rate)


def bearer(token: str = KEY) -> dict[str, str]:
    """The headers of somebody who has it."""
    return {"Authorization": f"Bearer {token}"}


class FakeJournal:
    """Knows what it is told; `away`, it does not answer."""

    def __init__(self) -> None:
        self.rows: dict[str, Status] = {}
        self.away = False
        self.asked: list[list[str]] = []

    async def read(self, ids: Sequence[str]) -> list[Status | None]:
        self.asked.append(list(ids))
        if self.away:
            raise JournalUnreachable("the database does not answer")
        return [self.rows.get(one) for one in ids]

    def put(self, id: str, state: State, **fields: Any) -> Status:
        """Has a row."""
        given: dict[str, Any] = {
            "type": "a.b",
            "code": "ok",
            "attempt": 1,
            "run": 1,
            "at": AT,
        } | fields
        self.rows[id] = status = Status(id=id, state=state, **given)
        return status


class FakeOperator:
    """Answers as it is told, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.answer = OperatorAnswer({"id": "r1", "from_state": "dead", "state": "waiting"})
        self.letters: list[dict[str, Any]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.types: dict[str, str] = {}
        self.breaks: OncepoolError | None = None
        self.breaks_at = 0

    async def type_of(self, id: str) -> str | None:
        return self.types.get(id)

    async def retry(self, id: str, by: By) -> OperatorAnswer:
        return self._note("retry", id, by)

    async def cancel(
        self, id: str, by: By, wait: float, types: Sequence[str] | None = None
    ) -> OperatorAnswer:
        return self._note("cancel", id, by, wait)

    async def resolve(
        self, id: str, resolution: Resolution, by: By, result: bytes | None, run: int | None = None
    ) -> OperatorAnswer:
        if result == b'"refused"':
            raise ResultRefused("PostgreSQL does not take this result")
        return self._note("resolve", id, by, resolution, result, run)

    async def dead(self, filters: Mapping[str, Any], limit: int) -> list[dict[str, Any]]:
        self._note("dead", dict(filters), limit)
        return self.letters

    async def dead_letter(self, name: str, kind: Kind | None) -> list[dict[str, Any]]:
        return [
            row for row in self.letters if str(row["id"]) == name and kind in (None, row["kind"])
        ]

    async def retry_dead(
        self, place: DeadLetterRef, by: By, id: str | None, type: str | None
    ) -> OperatorAnswer:
        return self._note("retry_dead", place, by, id, type)

    async def drop_dead(self, place: DeadLetterRef, by: By) -> OperatorAnswer:
        self.breaks_at -= 1
        if self.breaks is not None and self.breaks_at < 0:
            raise self.breaks
        return self._note("drop_dead", place, by)

    def refuse(self, state: str | None, reason: str, *, late: bool = False) -> None:
        """From now on it moves nothing."""
        self.answer = OperatorAnswer(refusal=Refusal("r1", state, reason), late=late)

    def _note(self, *asked: Any) -> OperatorAnswer:
        self.asked.append(asked)
        return self.answer


class GatewayBench:
    """A gateway in memory."""

    def __init__(
        self,
        *,
        operator: bool = True,
        journal: bool = True,
        send_timeout: float = 20.0,
        **settings: Any,
    ) -> None:
        self.settings = Settings(**settings)
        self.store = MemoryStatusStore()
        self.producer = FakeProducer()
        self.journal = FakeJournal()
        self.operator = FakeOperator()
        self.answers: list[tuple[str, str, int]] = []
        self.away: set[str] = set()
        self.probed = 0
        """How often the brokers were asked whether they are there."""
        client = AsyncClient(self.producer, self.store, "requests", queue_timeout=0.2)
        self.brokers = Brokers(self._ask_brokers)
        statuses = Statuses(client, self.journal if journal else None, None)
        self.parts = GatewayParts(
            settings=self.settings,
            access=Access(self.settings.gateway_keys, self.settings.gateway_rate),
            statuses=statuses,
            sender=KafkaSender(client, self.brokers, send_timeout, statuses.stopped),
            operator=self.operator if operator else None,
            readiness=Readiness(
                [Prober("kafka", needed=True, ask=self.brokers.ask), self._prober("redis")]
            ),
            client=client,
            events=self,
        )
        self.app: FastAPI = create_app(self.settings, parts=self.parts)

    def run(self, scenario: Callable[[httpx.AsyncClient], Awaitable[T]], **options: Any) -> T:
        """What happens in a loop of its own; all is closed at the end."""

        async def play() -> T:
            async with asyncio.timeout(50), self.http(**options) as http:
                return await scenario(http)

        return asyncio.run(play())

    @asynccontextmanager
    async def http(
        self, client: tuple[str, int] = ("127.0.0.1", 5000), **options: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        """Who calls it, from this address."""
        transport = httpx.ASGITransport(self.app, client=client, raise_app_exceptions=False)
        given = {"base_url": "http://localhost"} | options
        try:
            async with httpx.AsyncClient(transport=transport, **given) as http:
                yield http
        finally:
            self.producer.confirming.set()
            await self.parts.close()

    def say(self, id: str, state: State, *, type: str = "a.b", run: int = 1, **fields: Any) -> None:
        """Writes a status, as a consumer does of the payload that was sent under this id."""
        sent = [one for one in self.producer.envelopes() if one.id == id]
        if sent and "fingerprint" not in fields:
            fields["fingerprint"] = fingerprint(sent[-1].type, sent[-1].payload or b"")
        given: dict[str, Any] = {"code": "ok", "attempt": 1, "at": datetime.now(UTC)}
        written = StatusFields(id, type, state, run, **(given | fields))
        self.store.write([StatusWrite.of(written)])

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        self.answers.append((route, method, status))

    async def _ask_brokers(self) -> None:
        self.probed += 1
        if "kafka" in self.away:
            raise KafkaUnreachable("kafka is away")

    def _prober(self, name: str) -> Prober:
        async def ask() -> None:
            if name in self.away:
                raise JournalUnreachable(f"{name} is away")

        return Prober(name, needed=False, ask=ask)
