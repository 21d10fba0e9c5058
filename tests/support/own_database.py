"""A database of a test's own on a server that others use, and what may befall it."""

from __future__ import annotations

import uuid
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

ENDED = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE datname = %s AND pid <> pg_backend_pid() AND application_name LIKE %s
    ORDER BY random() LIMIT %s
) AS chosen
"""


class OwnDatabase:
    """Made when entered and dropped afterwards, whoever is connected."""

    def __init__(self, server: str, encoding: str = "") -> None:
        """`server`: URL of another database of that server."""
        self._form = f" ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'" if encoding else ""
        self._server = server
        self.name = f"test_{uuid.uuid4().hex[:12]}"
        self.url = urlsplit(server)._replace(path=f"/{self.name}").geturl()

    def end_connections(self, application: str = "oncepool", most: int = 1000) -> int:
        """Ends server processes of connections whose application's name begins so; how many."""
        with psycopg.connect(self._server, autocommit=True) as server:
            row = server.execute(ENDED, (self.name, f"{application}%", most)).fetchone()
        return 0 if row is None else int(row[0])

    def set_read_only(self, *, read_only: bool) -> None:
        """As after a failover, or back: holds for every connection, also those there are now."""
        self.set("default_transaction_read_only", "on" if read_only else "off")
        self.end_connections("")

    def set(self, name: str, value: str) -> None:
        """A setting of the sessions that begin from now on."""
        self._do("ALTER DATABASE {} SET {} = {}", sql.Identifier(name), sql.Literal(value))

    def let_in(self, *, new: bool) -> None:
        """Whether it takes new connections; those that there are stand in any case."""
        self._do("ALTER DATABASE {} ALLOW_CONNECTIONS {}", sql.SQL("true" if new else "false"))

    def __enter__(self) -> Self:
        self._do("CREATE DATABASE {}" + self._form)
        return self

    def __exit__(self, *_: object) -> None:
        self._do("DROP DATABASE IF EXISTS {} WITH (FORCE)")

    def _do(self, statement: Any, *more: sql.Composable) -> None:
        with psycopg.connect(self._server, autocommit=True) as server:
            server.execute(sql.SQL(statement).format(sql.Identifier(self.name), *more))
