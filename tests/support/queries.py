"""What a test asks the database, again and again."""

from __future__ import annotations

from typing import Any

import psycopg


class Queries:
    """Statements, each for itself, on one connection: to connect costs more than most of them.

    It is made with the first statement, and made anew where the server or the way to it has ended
    it: the statement is said again then. Raises as psycopg does.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows, where there are any."""
        known = self._connection
        if known is not None:
            try:
                return _ask(known, statement, values)
            except psycopg.OperationalError:
                if not known.closed:
                    raise
        # Plans are not kept: tests change tables.
        self._connection = None
        self._connection = psycopg.connect(self._url, autocommit=True, prepare_threshold=None)
        return _ask(self._connection, statement, values)

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()

    def __del__(self) -> None:
        self.close()


def _ask(
    connection: psycopg.Connection[tuple[Any, ...]], statement: str, values: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    cursor = connection.execute(statement.encode(), values or None)
    return cursor.fetchall() if cursor.description else []
