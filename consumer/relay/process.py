"""One relay from start to end: tables, signals, health port, exit code."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Final

import psycopg

from consumer.admin.outbox import connect_outbox
from consumer.config.settings import Settings
from consumer.errors import ConsumerError
from consumer.relay.health import RelayHealth
from consumer.relay.metrics import Depths, RelayMetrics, in_a_thread
from consumer.relay.routes import routes_of
from feedback.metrics.exposition import shown
from feedback.metrics.names import COUNTED
from feedback.outbox.checks import problems
from feedback.outbox.relay import AnswerPolicy, Relay
from feedback.outbox.relay.depth import LONGEST, outbox_depth
from processing.ipc.end_signals import handled
from processing.ipc.service_manager import LEAST_PAUSE, ServiceManager
from processing.ipc.standard_streams import exit_at_once
from processing.logs import get_logger
from processing.maintenance.health_server import HealthServer, Scrape

EXIT_CLEAN: Final = 0
EXIT_LEFT: Final = 3
"""A thread was still waiting for brokers or database when the process ended."""
_LOOK_WITHIN: Final = 5.0
"""Seconds for each question about the tables: nothing else begins before."""


def run_relay(settings: Settings) -> int:
    """Relays until a signal; the exit code. Raises ConsumerError for what can't work."""
    log = get_logger("oncepool.relay")
    stop = _stop_on_signals()
    routes = routes_of(settings)
    _look_at_tables(settings, list(routes))
    relay = Relay(
        settings.outbox_database_url,
        routes,
        schema=settings.outbox_schema,
        policy=AnswerPolicy(
            settings.outbox_resend_after,
            settings.outbox_resend_after_by_type,
            max_sends=settings.outbox_max_sends,
        ),
        inbox=settings.outbox_inbox,
    )
    health = RelayHealth(relay.states, time.monotonic)
    scrape = _metrics(settings, relay, list(routes)) if shown(settings.health_port) else None
    server = _serve(settings, health, scrape)
    relay.start()
    log.info("relaying", senders={name: route.topic for name, route in routes.items()})
    manager = ServiceManager()
    manager.ready("relaying")
    while not stop.wait(LEAST_PAUSE):
        if health.live().ok:
            manager.alive()
    health.stopping = True
    manager.stopping("ending what is on its way")
    log.info("stopping")
    ended = relay.close()
    if server is not None:
        server.close()
    log.info("ended", done={state.name: state.done for state in relay.states()})
    if not ended:
        exit_at_once(EXIT_LEFT)
    return EXIT_CLEAN


def _stop_on_signals() -> threading.Event:
    """Set by the first signal; a second one, but SIGHUP, ends the process, which loses nothing."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if not stop.is_set():
            stop.set()
        elif number != signal.SIGHUP:  # which a closed terminal sends twice
            os._exit(EXIT_LEFT)

    for number in handled():
        signal.signal(number, handle)
    return stop


def _look_at_tables(settings: Settings, senders: list[str]) -> None:
    """Raises ConsumerError for tables that can't be worked with.

    A database may be away yet, and somebody may have a table locked.
    """
    try:
        with connect_outbox(settings, within=_LOOK_WITHIN) as connection:
            found = problems(connection, settings.outbox_schema, senders, relay=True)
            place = f"{connection.info.dbname} at {connection.info.host}:{connection.info.port}"
    except (ConsumerError, psycopg.OperationalError) as error:
        get_logger("oncepool.relay").warning("the outbox is not looked at yet", error=str(error))
        return
    wrong = [f"{problem.text}: {problem.advice}" for problem in found if problem.wrong]
    if wrong:
        raise ConsumerError(f"the outbox in database {place} can't be used: {'; '.join(wrong)}")


def _metrics(settings: Settings, relay: Relay, senders: list[str]) -> Scrape:
    def look() -> Depths:
        with connect_outbox(settings, within=LONGEST) as connection:
            return {
                sender: outbox_depth(connection, settings.outbox_schema, sender, most=COUNTED)
                for sender in senders
            }

    return RelayMetrics(relay.states, look, time.monotonic, in_a_thread).text


def _serve(settings: Settings, health: RelayHealth, scrape: Scrape | None) -> HealthServer | None:
    if settings.health_port is None:
        return None
    try:
        server = HealthServer(settings.health_host, settings.health_port, health, scrape)
    except OSError as error:
        where = f"{settings.health_host}:{settings.health_port}"
        raise ConsumerError(
            f"the health port {where} can't be opened: {error}; end what has it,"
            " or set health_host and health_port"
        ) from error
    get_logger("oncepool.relay").info(
        "health endpoints /livez and /readyz", host=settings.health_host, port=server.port
    )
    return server
