"""Creates and upgrades an outbox: numbered SQL files, also as text for other migration tools."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from feedback.errors import ConfigurationError, OutboxTooNew
from feedback.outbox.names import in_schema
from feedback.schema_versions import CREATE_SCHEMA, LOCK, Migration, found_version, numbered_files

if TYPE_CHECKING:
    import psycopg

_LOCK_TIMEOUT: Final = "10s"
_PREPARE: Final = f"""\
{CREATE_SCHEMA}
CREATE TABLE IF NOT EXISTS :schema.schema_version (
    version    int         PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""
_APPLIED: Final = "INSERT INTO :schema.schema_version (version, name) VALUES"
_REGISTER: Final = "INSERT INTO :schema.senders (name) VALUES"
_INTRODUCTION: Final = """\
-- The outbox of Oncepool. To be run in one transaction; `oncepool outbox check` says afterwards
-- whether it is all there.
"""
# Some statements could be run twice, and some on an outbox that lacks what comes before them.
_ONLY_FROM: Final = """\
DO $$ BEGIN
    IF (SELECT max(version) FROM :schema.schema_version) IS DISTINCT FROM {0} THEN
        RAISE EXCEPTION 'these statements are for an outbox of version {0}'
            USING HINT = '`oncepool outbox check` says of which version this one is';
    END IF;
END $$;
"""


@functools.cache
def outbox_migrations() -> tuple[Migration, ...]:
    """All that this version has, in order."""
    return numbered_files(files("feedback.outbox") / "sql")


def script(schema: str, senders: Sequence[str], since: int = 0) -> str:
    """A new outbox as plain SQL, or what brings one of that version up to date.

    Raises ConfigurationError for a schema that has no plain name, and for a version that this
    Oncepool does not know.
    """
    known = outbox_migrations()
    if not 0 <= since <= known[-1].version:
        raise ConfigurationError(
            f"there is no version {since} of the outbox: this Oncepool knows 1 to"
            f" {known[-1].version}"
        )
    first = in_schema(_ONLY_FROM.format(since) if since else _PREPARE, schema)
    missing = [migration for migration in known if migration.version > since]
    return "\n".join([_INTRODUCTION, first, _statements(schema, missing, senders)])


def migrate(connection: psycopg.Connection[Any], schema: str, senders: Sequence[str]) -> list[str]:
    """Brings the outbox up to date, in one transaction; the names of the files that it applied.

    Any number of processes may do it at once. A sender's name stays until somebody deletes it.
    Raises OutboxTooNew, LockNotAvailable where somebody holds on to a table, and psycopg.Error.
    """
    with connection.transaction():
        connection.execute(LOCK, [f"oncepool outbox of {schema}"])
        version = found_version(connection, schema)
        known = outbox_migrations()
        if version > known[-1].version:
            raise OutboxTooNew(schema, version, known[-1].version)
        missing = [migration for migration in known if migration.version > version]
        if missing:
            connection.execute("SELECT set_config('lock_timeout', %s, true)", [_LOCK_TIMEOUT])
            connection.execute(in_schema(_PREPARE, schema).encode())
        connection.execute(_statements(schema, missing, senders).encode())
    return [migration.name for migration in missing]


def _statements(schema: str, migrations: Sequence[Migration], senders: Sequence[str]) -> str:
    parts = []
    for version, name, text in migrations:
        applied = f"{_APPLIED} ({version}, '{name}');\n"
        parts += [f"-- Version {version}\n\n{text}", applied]
    if senders:  # their names were checked as settings: nothing in them needs more than quotes
        names = ", ".join(f"('{name}')" for name in senders)
        parts.append(f"{_REGISTER} {names} ON CONFLICT DO NOTHING;\n")
    return in_schema("\n".join(parts), schema)
