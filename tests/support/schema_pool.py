"""Journal schemas that one test after another uses: emptying one costs a fifth of making one."""

from __future__ import annotations

import uuid
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from feedback.journal.migrations import migrate

MOST_BYTES: Final = 2 * 8192
"""One with a table that has grown beyond is not used again: pages that hold nothing any more would
stand before those that the next test fills, and rows come in the order of their pages."""

MOST_TESTS: Final = 100
"""So many tests use one."""

_SHAPE: Final = """
WITH relations AS MATERIALIZED (
    SELECT * FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s)
)
SELECT md5(string_agg(part, E'\\n' ORDER BY part)), (
    SELECT coalesce(max(pg_relation_size(oid)), 0) FROM relations WHERE relkind = 'r'
)
FROM (
    SELECT concat_ws(' ', 'relation', oid, relname, relkind, relowner, reloptions, relacl,
                     relrowsecurity, relpersistence) AS part FROM relations
    UNION ALL SELECT concat_ws(' ', 'column', attrelid, attnum, xmin)
    FROM pg_attribute WHERE attrelid IN (SELECT oid FROM relations) AND attnum > 0
    UNION ALL SELECT concat_ws(' ', 'default', oid)
    FROM pg_attrdef WHERE adrelid IN (SELECT oid FROM relations)
    UNION ALL SELECT concat_ws(' ', 'index', indexrelid, indisvalid, indisready, indisclustered)
    FROM pg_index WHERE indrelid IN (SELECT oid FROM relations)
    UNION ALL SELECT concat_ws(' ', 'constraint', oid, xmin)
    FROM pg_constraint WHERE connamespace = to_regnamespace(%(schema)s)
    UNION ALL SELECT concat_ws(' ', 'trigger', oid, xmin)
    FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM relations)
    UNION ALL SELECT concat_ws(' ', 'rule', oid)
    FROM pg_rewrite WHERE ev_class IN (SELECT oid FROM relations)
    UNION ALL SELECT concat_ws(' ', 'function', oid, xmin)
    FROM pg_proc WHERE pronamespace = to_regnamespace(%(schema)s)
    UNION ALL SELECT concat_ws(' ', 'type', oid)
    FROM pg_type WHERE typnamespace = to_regnamespace(%(schema)s)
    UNION ALL SELECT concat_ws(' ', 'schema', nspowner, nspacl)
    FROM pg_namespace WHERE oid = to_regnamespace(%(schema)s)
) AS parts
"""
"""All that a test may have changed of a schema, in one text, and the bytes of its largest table."""

_ADDED: Final = """
SELECT 'TABLE', oid::regclass::text FROM pg_class
WHERE relnamespace = to_regnamespace(%(schema)s) AND relkind = 'r' AND relname <> ALL (%(tables)s)
UNION ALL SELECT 'FUNCTION', oid::regprocedure::text FROM pg_proc
WHERE pronamespace = to_regnamespace(%(schema)s)
"""


class SchemaPool:
    """What it hands out is empty, and as `migrate` makes it.

    Only for tests that leave nobody behind who still writes: what a killed process sent last may
    come when the schema is the next test's.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self._shapes: dict[str, str] = {}
        self._used: dict[str, int] = {}
        self._free: list[str] = []
        self._tables: list[str] = []

    def take(self) -> str:
        """The name of a schema that nobody else uses until it is given back."""
        name = self._free.pop() if self._free else self._made()
        self._used[name] += 1
        return name

    def give_back(self, name: str) -> None:
        """Makes it as it was, for the next who takes one; else there is it no more."""
        if self._used[name] < MOST_TESTS and self._emptied(name):
            self._free.append(name)
        else:
            self._drop(name)

    def close(self) -> None:
        """Drops what nobody has."""
        for name in self._free:
            self._drop(name)
        self._connection.close()

    def _made(self) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        migrate(self._url, name)
        self._shapes[name], _ = self._look(name)
        self._used[name] = 0
        if not self._tables:
            found = self._connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", [name]
            )
            self._tables = [str(table) for (table,) in found]
        return name

    def _emptied(self, name: str) -> bool:
        try:
            with self._connection.transaction():
                self._empty(name)
            shape, size = self._look(name)
        except errors.Error:
            return False
        return shape == self._shapes[name] and size <= MOST_BYTES

    def _empty(self, name: str) -> None:
        own = [sql.Identifier(name, table) for table in self._tables]
        self._do(
            "SET LOCAL lock_timeout = '10s'; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
            sql.SQL(", ").join(own),
        )
        added = self._connection.execute(_ADDED, {"schema": name, "tables": self._tables})
        for kind, what in added.fetchall():
            drop = sql.SQL("DROP {} IF EXISTS {} CASCADE")
            self._connection.execute(drop.format(sql.SQL(kind), sql.SQL(what)))
        emptied = [
            sql.SQL("DELETE FROM {}").format(table)
            for table, plain in zip(own, self._tables, strict=True)
            if plain != "schema_version"
        ]
        self._connection.execute(sql.SQL("; ").join(emptied))
        self._connection.execute(
            "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence JOIN pg_class ON oid ="
            " seqrelid WHERE relnamespace = to_regnamespace(%s)",
            [name],
        )

    def _look(self, name: str) -> tuple[str, int]:
        row = self._connection.execute(_SHAPE, {"schema": name}).fetchone()
        assert row is not None
        return str(row[0]), int(row[1])

    def _drop(self, name: str) -> None:
        self._do("DROP SCHEMA IF EXISTS {} CASCADE", sql.Identifier(name))

    def _do(self, statement: Any, *names: sql.Composable) -> None:
        self._connection.execute(sql.SQL(statement).format(*names))
