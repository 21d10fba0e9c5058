"""What `oncepool check` tries of the database and of Redis: that they answer, and take writes."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any, Final

import psycopg
import redis

from consumer.admin.finding import Finding
from consumer.admin.journal import advice_of, said_by
from consumer.admin.other_apps import journals_beside
from consumer.admin.redis_errors import RedisProblem
from consumer.config.settings import Settings
from feedback.errors import JournalError, SchemaMissing
from feedback.journal.connections import Connection, open_connection
from feedback.journal.identity import journal_identity
from feedback.journal.migrations import check_schema
from feedback.journal.privileges import Use, check_privileges
from feedback.journal.probe import try_write
from feedback.status.redis_connections import open_pool
from processing.cluster.other_journals import ADVICE, in_words

CONNECT_TIMEOUT: Final = 5
_KEY_STAYS: Final = 10
"""Seconds for which the key that is tried may stay, where it could not be deleted."""


def check_database(settings: Settings) -> list[Finding]:
    """PostgreSQL answers, has the journal of this version, and takes writes there."""
    schema = settings.database_schema
    found: list[Finding] = []
    try:
        with open_connection(settings.database_url, "oncepool check") as connection:
            version = connection.info.server_version // 10_000
            found.append(Finding("database", "ok", f"PostgreSQL {version} answers"))
            check_schema(connection, schema)
            found.append(Finding("database", "ok", f"schema {schema} is up to date"))
            found += _shadowed_tables(connection, schema)
            uses = (Use.RESULTS,) if settings.kafka_results_topic else ()
            found += _other_journals(settings, journal_identity(connection, schema=schema))
            check_privileges(connection, schema=schema, uses=uses)
            try_write(connection, schema=schema)
    except psycopg.errors.LockNotAvailable:
        detail = (
            f"whether it takes writes was not seen: another session locks {schema}.dead_letters"
        )
        advice = "check again when that has ended, as when an index has been rebuilt"
        found.append(Finding("database", "warning", detail, advice))
    except psycopg.Error as error:
        advice = advice_of(error, "database_url") or "see to what it names"
        return [*found, Finding("database", "wrong", said_by(error), advice)]
    except JournalError as error:
        if isinstance(error, SchemaMissing) and settings.migrate_on_start:
            return [*found, Finding("database", "ok", "`run` makes the journal: migrate_on_start")]
        return [*found, Finding("database", "wrong", error.what, error.advice)]
    return found


def _shadowed_tables(connection: Connection, schema: str) -> list[Finding]:
    """Statements of handlers that name no schema would find the journal's tables."""
    row = connection.execute(
        "SELECT quote_ident(current_user), current_setting('search_path')"
        " WHERE %s = ANY(current_schemas(false))",
        [schema],
    ).fetchone()
    if row is None:
        return []
    user, path = row
    detail = (
        f"the search path of {user} ({path}) has {schema}, where the journal is: what handlers name"
        " without a schema is looked for there, too, and what they make may be made there"
    )
    advice = f"ALTER ROLE {user} SET search_path = public, or the schema of the handlers' tables"
    if schema == "public":
        advice = "give the journal a schema of its own, or the handlers' tables one that they name"
    return [Finding("database", "warning", detail, advice)]


def _other_journals(settings: Settings, journal: str) -> list[Finding]:
    """Instances of the same group that run with another one."""
    if not (others := journals_beside(settings, journal)):
        return []
    detail = (
        f"this journal is {journal}, and of group {settings.kafka_group} another one is used by"
    )
    return [Finding("database", "wrong", f"{detail} {in_words(others)}", ADVICE)]


def privileges_missing(settings: Settings, uses: Collection[str]) -> list[Finding]:
    """What the database user lacks for what the app uses of the journal beside what all do.

    Nothing where the database does not answer, or lacks more: `check_database` tells that.
    """
    if not uses or not settings.database_url:
        return []
    schema = settings.database_schema
    try:
        with open_connection(settings.database_url, "oncepool check") as connection:
            check_privileges(connection, schema=schema, uses=())
            try:
                check_privileges(connection, schema=schema, uses=uses)
            except psycopg.errors.InsufficientPrivilege as error:
                detail = f"{said_by(error)}, for {', '.join(uses)}"
                return [Finding("app", "wrong", detail, advice_of(error, "database_url"))]
    except psycopg.Error:
        pass
    return []


def check_redis(settings: Settings) -> list[Finding]:
    """Redis answers, takes writes and does not throw statuses away."""
    found: list[Finding] = []
    client = redis.Redis.from_pool(open_pool(settings.redis_url, CONNECT_TIMEOUT))
    try:
        client.ping()
        found += _kind_of_redis(client.info())
        key = f"{settings.redis_prefix}:check:{uuid.uuid4().hex}"
        client.set(key, b"", ex=_KEY_STAYS)
        client.delete(key)
    except (redis.RedisError, OSError) as error:
        problem = RedisProblem.of(error)
        found.append(Finding("redis", "wrong", f"it {problem}", problem.advice))
    finally:
        client.close()
    return found


def _kind_of_redis(information: dict[str, Any]) -> list[Finding]:
    name = "Valkey" if "valkey_version" in information else "Redis"
    version = information.get("valkey_version") or information.get("redis_version")
    found = [Finding("redis", "ok", f"{name} {version} answers")]
    if information.get("cluster_enabled"):
        detail = "it runs in cluster mode, where several statuses can't be read or written at once"
        advice = "give redis_url of one that does not; one node with a replica holds enough"
        found.append(Finding("redis", "wrong", detail, advice))
    policy = information.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        detail = f"maxmemory-policy is {policy}: statuses may vanish before they are read"
        advice = "set maxmemory-policy to noeviction and give it enough memory"
        found.append(Finding("redis", "warning", detail, advice))
    return found
