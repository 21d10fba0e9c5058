"""What the gateway is made of: made from settings, or by a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from consumer.admin.journal import checked
from consumer.config.settings import Settings
from consumer.gateway.access import Access
from consumer.gateway.brokers import Brokers, topic_probe
from consumer.gateway.bulk_moves import BulkMover, JournalBulkMover
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.events import SILENT, EventsTold, GatewayEvents
from consumer.gateway.idempotency import KeysInFlight
from consumer.gateway.limits_board import LimitsBoard, RedisLimitsBoard
from consumer.gateway.operators import JournalOperator, OperatorMoves
from consumer.gateway.pages.journal_pages import JournalPages, PageJournal
from consumer.gateway.pages.services import Services, ServicesSeen
from consumer.gateway.pages.sessions import Sessions
from consumer.gateway.rate_limit import WaitSlots
from consumer.gateway.readiness import Readiness, probers
from consumer.gateway.running_ends import Stopped
from consumer.gateway.schedules import JournalSchedules, ScheduleSource
from consumer.gateway.sending import KafkaSender, OutboxSender, Sender
from consumer.gateway.sources import journal_source, outbox_source
from consumer.gateway.status_lists import StatusLists
from consumer.gateway.statuses import Statuses, StatusSource
from consumer.intake.kafka_properties import producer_properties
from feedback.client.async_client import AsyncClient
from feedback.errors import DeliveryFailed
from feedback.journal.connections import Connection, open_connection
from feedback.metrics.exposition import available
from feedback.metrics.http import HttpMetrics
from processing.logs import get_logger

NAME = "oncepool gateway"
READERS, OPERATORS, WRITERS = 3, 2, 4
"""Connections to the journal for statuses and for operators, and to the outbox."""
PAGE_READERS, PATIENT_READERS, PAGE_COUNTERS, PAGE_MOVERS = 3, 2, 2, 4
"""To the journal for pages: for looks, long searches, figures of the whole, and moves. Who has what
runs cancelled waits for that without one."""
TIMEOUTS = {
    "statement_timeout": 15.0,
    "lock_timeout": 5.0,
    "idle_in_transaction_session_timeout": 15.0,
}

log = get_logger("oncepool.gateway")


def _metrics() -> HttpMetrics | None:
    return HttpMetrics() if available() else None


@dataclass(slots=True)
class PageParts:
    """What the pages are made of. None: it is not configured."""

    sessions: Sessions
    services: ServicesSeen
    journal: PageJournal | None = None
    mover: BulkMover | None = None
    limits: LimitsBoard | None = None
    schedules: ScheduleSource | None = None


@dataclass(slots=True)
class GatewayParts:
    """What answers calls. `operator` is None where no journal is configured."""

    settings: Settings
    access: Access
    statuses: Statuses
    sender: Sender
    operator: OperatorMoves | None
    readiness: Readiness
    client: AsyncClient
    events: GatewayEvents = SILENT
    pages: PageParts | None = None
    metrics: HttpMetrics | None = field(default_factory=_metrics)
    """None where prometheus-client is missing."""
    databases: list[DatabaseThreads] = field(default_factory=list)
    keys: KeysInFlight = field(default_factory=KeysInFlight)
    slots: WaitSlots = field(init=False)
    lists: StatusLists = field(init=False)
    closes_by: float | None = None
    """When close() has to have ended, as time.monotonic() has it, where somebody has said so."""

    def __post_init__(self) -> None:
        self.slots = WaitSlots(self.settings.gateway_max_waits)
        self.lists = StatusLists(self.statuses)

    @property
    def listeners(self) -> GatewayEvents:
        """All that hear of answers."""
        return self.events if self.metrics is None else EventsTold(self.metrics, self.events)

    async def close(self) -> None:
        """Ends waits, threads and connections."""
        self.statuses.stop()
        for threads in self.databases:
            threads.close()
        try:
            await self.client.close(timeout=self._time_to_close())
        except DeliveryFailed as error:
            # Whoever sent them was told, or is gone.
            log.warning("requests were not confirmed", error=str(error))

    def _time_to_close(self) -> float:
        within = self.settings.gateway_send_timeout
        if self.closes_by is None:
            return within
        return min(within, max(0.0, self.closes_by - time.monotonic()))


def parts_of(settings: Settings, events: GatewayEvents = SILENT) -> GatewayParts:
    """The parts that the settings ask for. Nothing is connected yet.

    Raises ConfigError where a setting is missing.
    """
    databases: list[DatabaseThreads] = []
    readers = operators = writers = None
    journal: StatusSource | None = None
    outbox: StatusSource | None = None
    if settings.database_url:
        readers, operators = (journal_threads(settings, n) for n in (READERS, OPERATORS))
        journal = journal_source(readers, settings.database_schema)
        databases += [readers, operators]
    if settings.gateway_outbox:
        settings.require("outbox_database_url")
        writers = _outbox(settings)
        outbox = outbox_source(writers, settings.outbox_schema)
        databases.append(writers)
    access = Access(settings.gateway_keys, settings.gateway_rate)
    client = _client(settings)
    statuses = Statuses(client, journal, outbox)
    stopped = statuses.stopped
    pages = _pages(settings, access, databases, stopped) if settings.gateway_pages else None
    brokers = Brokers(topic_probe(settings))
    sender: Sender
    if writers is not None:
        uncompared = settings.gateway_uncompared
        sender = OutboxSender(writers, settings.outbox_schema, statuses, uncompared)
    else:
        sender = KafkaSender(client, brokers, settings.gateway_send_timeout, stopped)
    return GatewayParts(
        settings=settings,
        access=access,
        statuses=statuses,
        sender=sender,
        operator=None if operators is None else JournalOperator(settings, operators, stopped),
        readiness=Readiness(probers(settings, client, brokers, readers, writers)),
        client=client,
        events=events,
        pages=pages,
        databases=databases,
    )


def _pages(
    settings: Settings, access: Access, databases: list[DatabaseThreads], stopped: Stopped
) -> PageParts:
    """With threads of their own, so that no look at very many rows keeps a status waiting."""
    sessions = Sessions(access, settings.gateway_session_secret, settings.gateway_session_time)
    if not settings.database_url:
        limits = RedisLimitsBoard(settings) if settings.redis_url else None
        return PageParts(sessions, Services(settings, None), limits=limits)
    counts = (PAGE_READERS, PATIENT_READERS, PAGE_COUNTERS, PAGE_MOVERS)
    readers, patient, counting, movers = (journal_threads(settings, n) for n in counts)
    databases += [readers, patient, counting, movers]
    journal = JournalPages(readers, patient, counting, settings.database_schema)
    return PageParts(
        sessions,
        Services(settings, journal),
        journal,
        JournalBulkMover(settings, movers, stopped),
        RedisLimitsBoard(settings, readers) if settings.redis_url else None,
        JournalSchedules(readers, settings.database_schema),
    )


def _client(settings: Settings) -> AsyncClient:
    settings.require("redis_url")
    if settings.gateway_outbox:
        # Nothing is sent with it: it reads statuses and waits for them.
        return AsyncClient(_NoKafka(), settings.redis_url, "outbox", prefix=settings.redis_prefix,
                           hints=False)  # fmt: skip
    settings.require("kafka_bootstrap_servers")
    if not settings.send_topic:
        settings.require("kafka_topics")
    return AsyncClient(
        producer_properties(settings),
        settings.redis_url,
        settings.send_topic,
        prefix=settings.redis_prefix,
        delivery_timeout=settings.gateway_send_timeout,
        queue_timeout=min(2.0, settings.gateway_send_timeout),
    )


def journal_threads(settings: Settings, threads: int) -> DatabaseThreads:
    """So many connections to the journal."""

    def connect(made: Callable[[Connection], None]) -> Connection:
        return checked(_open(settings.database_url, made), settings)

    return DatabaseThreads("database_url", connect, threads)


def _outbox(settings: Settings) -> DatabaseThreads:
    return DatabaseThreads(
        "outbox_database_url", lambda made: _open(settings.outbox_database_url, made), WRITERS
    )


def _open(url: str, made: Callable[[Connection], None]) -> Connection:
    return open_connection(url, NAME, timeouts=TIMEOUTS, made=made)


class _NoKafka:
    """A producer that is never used."""

    def produce(self, topic: str, **arguments: object) -> None:
        raise NotImplementedError

    def poll(self, timeout: float) -> int:
        time.sleep(timeout)
        return 0

    def flush(self, timeout: float) -> int:
        del timeout
        return 0

    def purge(self) -> None:
        """Nothing is on its way."""

    def __len__(self) -> int:
        return 0
