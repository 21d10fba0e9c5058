"""psycopg's memory of the statements that it has had the server prepare, true for pipelines too.

psycopg notes a statement as prepared when it sends it. In a pipeline that fails before, the server
leaves it out, and each later use of it would fail on that connection: for whatever request it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import pq
from psycopg._preparing import Key, Prepare, PrepareManager
from psycopg._queries import PostgresQuery


class PreparedStatements(PrepareManager):
    """Forgets what was left out."""

    def get(self, query: PostgresQuery, prepare: bool | None = None) -> tuple[Prepare, bytes]:
        """As psycopg's. What the server is to forget it is told behind the next statement.

        That one must not be prepared, or it would be forgotten as well.
        """
        return (Prepare.NO, b"") if self._to_flush else super().get(query, prepare)

    def maybe_add_to_cache(self, query: PostgresQuery, prep: Prepare, name: bytes) -> Key | None:
        """As psycopg's, which hears of what came of a statement only where this names it."""
        key = super().maybe_add_to_cache(query, prep, name)
        return self.key(query) if prep is Prepare.SHOULD else key

    def validate(
        self, key: Key, prep: Prepare, name: bytes, results: Sequence[pq.abc.PGresult]
    ) -> None:
        """As psycopg's. One that was prepared and failed is prepared all the same."""
        if prep is not Prepare.SHOULD or self._check_results(results):
            super().validate(key, prep, name, results)
        elif any(result.status == pq.ExecStatus.PIPELINE_ABORTED for result in results):
            self._names.pop(key, None)
