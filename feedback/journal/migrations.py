"""Creates and upgrades the journal: numbered SQL files, each applied once, in order.

Each file is one transaction that holds an advisory lock, so any number of processes may migrate at
once, also through a proxy that pools transactions.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from feedback.backoff import Backoff
from feedback.errors import JournalError, SchemaMissing, SchemaTooNew
from feedback.journal.connections import open_connection
from feedback.schema_versions import CREATE_SCHEMA, LOCK, Migration, found_version, numbered_files

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 8.0
"""Seconds that a try waits for a lock. Whoever comes after waits behind it, for no more than
`database_lock_timeout`, 10 s unless that is set."""
BEYOND: Final = 0.5
"""Seconds to wait beyond `deadlock_timeout`, after which PostgreSQL ends an autovacuum that is in
somebody's way."""
MOST_TRIES: Final = 10
_HELD: Final = (
    "the journal can't be upgraded while others hold on to its tables, as transactions do for as"
    " long as their handlers run: pause types whose handlers take long, or stop their instances"
)

_TABLE: Final = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_GONE: Final = """
SELECT name FROM unnest(%(made)s::text[]) AS name
WHERE NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE n.nspname = %(schema)s AND c.relname = name)
"""

_DEADLOCK_TIMEOUT: Final = """
SELECT setting::float / 1000 FROM pg_settings WHERE name = 'deadlock_timeout'
"""
_PREPARE: Final = f"""
{CREATE_SCHEMA}
SET LOCAL search_path = :schema;
CREATE TABLE IF NOT EXISTS schema_version (
    version    int         PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


@functools.cache
def migrations() -> tuple[Migration, ...]:
    """All migrations that this version has, in order."""
    return numbered_files(files("feedback.journal") / "sql" / "migrations")


def migrate(url: str, schema: str) -> list[str]:
    """Brings the journal up to date; the names of the migrations that it applied.

    Raises JournalError where the journal is newer or lacks a table, LockNotAvailable where others
    hold on to a table for two minutes, and psycopg.Error where the database is away or refuses.
    """
    applied: list[str] = []
    known = migrations()
    with open_connection(url, "oncepool migrate") as connection:
        # One transaction more than there is to do: the last one sees that nothing is left.
        while (name := _apply_in_turn(connection, schema, known)) is not None:
            applied.append(name)
        _check_tables(connection, schema)
    return applied


def _apply_in_turn(
    connection: psycopg.Connection[Any], schema: str, known: tuple[Migration, ...]
) -> str | None:
    """As `_apply_next`, tried again while somebody else uses the tables.

    A lock that is waited for holds up everybody who comes after, so each try gives way, for as long
    as it has waited. A transaction is open while its handlers run: each try waits longer for those.
    """
    [(deadlock,)] = connection.execute(_DEADLOCK_TIMEOUT).fetchall()
    first = max(FIRST_WAIT, deadlock + BEYOND)
    waits = Backoff(first, max(first, LONGEST_WAIT))
    tries = 1
    while True:
        wait = waits.after(tries)
        try:
            return _apply_next(connection, schema, known, wait)
        except errors.LockNotAvailable as error:
            if tries == MOST_TRIES:
                raise errors.LockNotAvailable(f"{_HELD} ({error})") from None
        time.sleep(wait)
        tries += 1


def _apply_next(
    connection: psycopg.Connection[Any], schema: str, known: tuple[Migration, ...], wait: float
) -> str | None:
    """Applies the first migration that is missing; its name, None where none is.

    Raises LockNotAvailable where it has waited for so many seconds.
    """
    with connection.transaction():
        connection.execute(LOCK, [f"oncepool migrations of {schema}"])
        version = found_version(connection, schema)
        _refuse_newer(schema, version)
        missing = [migration for migration in known if migration.version > version]
        if not missing:
            return None
        # Not before: where nothing is missing, a user without the right to create is enough.
        name = sql.Identifier(schema).as_string()
        connection.execute(_PREPARE.replace(":schema", name).encode())
        first = missing[0]
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{wait:.3f}s"])
        connection.execute(first.text.encode())  # as bytes: its text is SQL and nothing else
        connection.execute(
            "INSERT INTO schema_version (version, name) VALUES (%s, %s)",
            [first.version, first.name],
        )
        return first.name


def check_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Raises JournalError unless the journal is of this version, and whole."""
    version = found_version(connection, schema)
    wanted = migrations()[-1].version
    if version < wanted:
        raise SchemaMissing(schema, version, wanted)
    _refuse_newer(schema, version)
    _check_tables(connection, schema)


class KnownJournal:
    """A journal that a process looks at again and again: an upgrade beside it does not end its use.

    Once it was of this version, a newer one is taken as well. Any thread may look.
    """

    def __init__(
        self, schema: str, upgraded: Callable[[SchemaTooNew], object], *, known: bool = False
    ) -> None:
        """`upgraded` hears once that a newer one is used.

        `known`: it was of this version when this process came.
        """
        self._schema = schema
        self._upgraded = upgraded
        self._known = known
        self._told = False  # guarded by _lock
        self._lock = threading.Lock()

    def check(self, connection: psycopg.Connection[Any]) -> None:
        """Raises JournalError unless it can be used."""
        try:
            check_schema(connection, self._schema)
        except SchemaTooNew as error:
            if not self._known:
                raise
            with self._lock:
                first, self._told = not self._told, True
            if first:
                self._upgraded(error)
        else:
            self._known = True


def _check_tables(connection: psycopg.Connection[Any], schema: str) -> None:
    """What was made once is not made again: somebody dropped or renamed it."""
    made = _TABLE.findall("".join(migration.text for migration in migrations()))
    gone = [name for (name,) in connection.execute(_GONE, {"made": made, "schema": schema})]
    if gone:
        tables = ", ".join(f"{schema}.{name}" for name in gone)
        raise JournalError(
            f"the journal lacks {tables}, which was dropped or renamed",
            "give it back its name, or restore it from a backup",
        )


def _refuse_newer(schema: str, version: int) -> None:
    wanted = migrations()[-1].version
    if version > wanted:
        raise SchemaTooNew(schema, version, wanted)
