"""Whose connection tells of rows that are due."""

from __future__ import annotations

from contextlib import closing

import psycopg

from feedback.journal.connections import due_channel
from processing.maintenance.connection import ListeningConnection
from stack import Stack
from tests.support.pooler import Pooler
from tests.support.waiting import eventually


def test_notifications_are_heard(stack: Stack, schema: str) -> None:
    heard: list[str] = []
    with closing(
        ListeningConnection(stack.database, schema, "i", lambda: heard.append("due"))
    ) as line:
        line.open()
        with psycopg.connect(stack.database) as other:
            other.execute("SELECT pg_notify(%s, '')", [due_channel(schema)])
        eventually(lambda: line.wait(1.0, listening=True))
        line.hear()
    assert heard == ["due"]


def test_behind_a_proxy_that_pools_transactions_nothing_is_left_to_whoever_is_next(
    stack: Stack, schema: str
) -> None:
    """Connections of psycopg keep what they are told and nobody takes, without end."""
    with (
        closing(Pooler(stack.database, 1)) as pooler,
        closing(ListeningConnection(pooler.url, schema, "i", lambda: None)) as line,
    ):
        line.open()
        assert pooler.heard == set()
