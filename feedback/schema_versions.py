"""Numbered SQL files that make and upgrade a schema, and how far one has come.

Of the driver nothing is loaded: the connection is given.
"""

from __future__ import annotations

from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import psycopg

LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
"""Takes what the text names, until the transaction ends."""
CREATE_SCHEMA: Final = """\
DO $$ BEGIN
    IF to_regnamespace(':schema') IS NULL THEN
        CREATE SCHEMA IF NOT EXISTS :schema;
    END IF;
END $$;
"""
"""`:schema` stands for its quoted name. Who owns the schema needs no right on the database, which
PostgreSQL asks for before it looks whether the schema is there."""


class Migration(NamedTuple):
    """One numbered file."""

    version: int
    name: str
    text: str


def numbered_files(folder: Traversable) -> tuple[Migration, ...]:
    """The SQL files of a folder, in order; their names begin with four digits."""
    return tuple(
        sorted(
            Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
            for file in folder.iterdir()
            if file.name.endswith(".sql")
        )
    )


def found_version(connection: psycopg.Connection[Any], schema: str) -> int:
    """The version of the schema in the database; 0 where there is none."""
    quoted = schema.replace('"', '""')
    table = f'"{quoted}".schema_version'
    there = connection.execute("SELECT to_regclass(%s)", [table]).fetchone()
    if there is None or there[0] is None:
        return 0
    query = f"SELECT coalesce(max(version), 0) FROM {table}"  # noqa: S608 - quoted
    (version,) = connection.execute(query.encode()).fetchone() or (0,)
    return int(version)
