"""A command's connection to a producer's outbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from consumer.admin.journal import explained
from consumer.config.settings import Settings
from feedback.journal.connections import open_connection


@contextmanager
def connect_outbox(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """A connection to its database, whatever stands there. Raises ConsumerError without one."""
    settings.require("outbox_database_url")
    with (
        explained("outbox_database_url"),
        open_connection(settings.outbox_database_url, "oncepool outbox") as connection,
    ):
        yield connection
