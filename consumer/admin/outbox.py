"""How a command reaches a producer's outbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from consumer.admin.journal import LOCK_TIMEOUT, bounds, explained
from consumer.config.settings import Settings
from feedback.journal.connections import open_connection
from feedback.outbox.dead_letters import OutboxOperator
from feedback.outbox.missing_tables import missing_named


@contextmanager
def connect_outbox(
    settings: Settings, *, lock: float = LOCK_TIMEOUT, within: float | None = None
) -> Iterator[psycopg.Connection[Any]]:
    """A connection to its database, whatever stands there. Raises ConsumerError without one.

    Each statement waits for a lock for `lock` seconds (0: without a bound), and ends `within` some
    where given.
    """
    settings.require("outbox_database_url")
    name = "outbox_database_url"
    with explained(name):
        opened = open_connection(
            settings.outbox_database_url, "oncepool outbox", timeouts=bounds(lock, within)
        )
    with explained(name, connected=True, within=within), opened as connection:
        yield connection


@contextmanager
def outbox_operator(settings: Settings, *, within: float | None = None) -> Iterator[OutboxOperator]:
    """An operator of the outbox that stands there; each statement `within` seconds where given.

    Raises ConsumerError, and OutboxMissing where its tables are not there or too old.
    """
    schema = settings.outbox_schema
    with connect_outbox(settings, within=within) as connection, missing_named(schema):
        yield OutboxOperator(connection, schema, inbox=settings.outbox_inbox)
