"""An outbox to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row

from feedback.outbox.migrations import migrate, outbox_migrations, script
from feedback.postgres_times import TimesCursor


class Outbox:
    """The rows of one, over a connection of its own."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.connection = psycopg.connect(
            url, autocommit=True, row_factory=dict_row, cursor_factory=TimesCursor
        )

    def rows(self, query: str = "SELECT * FROM :schema.requests ORDER BY seq") -> list[Any]:
        """Rows as dicts; `:schema` is the outbox's."""
        return self.connection.execute(self.sql(query).encode()).fetchall()

    def run(self, statement: str) -> None:
        """Executes a statement."""
        self.connection.execute(self.sql(statement).encode())

    def sql(self, text: str) -> str:
        """The statement with the schema's name in it."""
        return text.replace(":schema", self.schema)


@contextmanager
def new_outbox(url: str, schema: str, senders: Sequence[str] = ()) -> Iterator[Outbox]:
    """One whose tables are made here."""
    with psycopg.connect(url) as connection:
        migrate(connection, schema, list(senders))
    made = Outbox(url, schema)
    yield made
    made.connection.close()


def make_old(connection: psycopg.Connection[Any], schema: str, version: int) -> None:
    """As the statements of an Oncepool of that version have made it."""
    whole = script(schema, [])
    later = [f"-- Version {m.version}\n" for m in outbox_migrations() if m.version == version + 1]
    connection.execute(whole.partition(later[0] if later else "-- none")[0].encode())
