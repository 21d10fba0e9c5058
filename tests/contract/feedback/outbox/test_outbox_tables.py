"""Outboxes made, upgraded and checked."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from consumer import cli
from feedback import outbox
from feedback.errors import OutboxTooNew
from feedback.outbox import definitions
from feedback.outbox.checks import problems
from feedback.outbox.migrations import migrate, outbox_migrations, script
from feedback.outbox.relay import Relay, Route
from stack import Stack
from tests.support.catalog import catalog
from tests.support.journal import Rival
from tests.support.outbox import Outbox, make_old
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

MIGRATIONS = [
    "0001_requests",
    "0002_relay",
    "0003_answers",
    "0004_conflicts",
    "0005_adding",
    "0006_long_keys",
    "0007_vacuum",
]


ADDED_THEN = """
INSERT INTO :schema.requests (created_at, shard, id, type, sender, fingerprint, payload, headers)
VALUES (now(), 7, 'early', 't', 'default', 'x', '{}', '[]')
"""
OTHER_INDEX = """
DROP INDEX :schema.requests_unsent;
CREATE INDEX requests_unsent ON :schema.requests (shard, seq) WHERE state = 'unsent'
"""
OTHER_ADDING = """
CREATE OR REPLACE FUNCTION :schema.add_requests(given json) RETURNS text
SET plan_cache_mode = force_custom_plan LANGUAGE sql AS 'SELECT NULL'
"""
OTHER_WAKING = """
CREATE OR REPLACE FUNCTION :schema.wake_relays() RETURNS trigger
LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'
"""
OTHER_TRIGGER = """
DROP TRIGGER requests_added ON :schema.requests;
CREATE TRIGGER requests_added AFTER DELETE ON :schema.requests
    EXECUTE FUNCTION :schema.wake_relays()
"""


@pytest.fixture(scope="module")
def standing(stack: Stack) -> Iterator[Outbox]:
    """One for all tests here that leave it as it was."""
    made = Outbox(stack.database, f"test_{uuid.uuid4().hex[:12]}")
    with psycopg.connect(made.url) as connection:
        migrate(connection, made.schema, ["billing"])
    yield made
    made.run("DROP SCHEMA :schema CASCADE")
    made.connection.close()


def found(
    outbox_: Outbox, damage: str, *senders: str, relay: bool = False
) -> list[tuple[str, bool]]:
    """What is said of it after that was done to it."""
    with psycopg.connect(outbox_.url) as connection:
        connection.execute(outbox_.sql(damage).encode())
        said = problems(connection, outbox_.schema, senders, relay=relay)
        connection.rollback()
    return [(p.text, p.wrong) for p in said]


def test_the_check_knows_each_column_that_there_is(standing: Outbox) -> None:
    columns = standing.rows(
        "SELECT table_name, array_agg(column_name::text) AS names"
        " FROM information_schema.columns WHERE table_schema = ':schema' GROUP BY 1"
    )
    assert {row["table_name"]: set(row["names"]) for row in columns} == {
        name: set(names) for name, names in definitions.COLUMNS.items()
    }
    assert set(definitions.function_bodies("s")) == set(definitions.FUNCTIONS)
    for seen in ("hex", "escape"):
        assert found(standing, f"SET bytea_output = {seen}", "billing") == []


def test_two_may_make_it_at_once(stack: Stack, empty_schema: str) -> None:
    waits = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND pid = %s"
    with (
        psycopg.connect(stack.database) as first,
        psycopg.connect(stack.database, autocommit=True) as watcher,
    ):
        with first.transaction():
            assert migrate(first, empty_schema, ["a"]) == MIGRATIONS
            second = Rival(stack.database, lambda c: migrate(c, empty_schema, ["b"]))
            eventually(lambda: watcher.execute(waits, [second.pid]).fetchone() is not None)
        assert second.result() == []
        assert problems(watcher, empty_schema, ["a", "b"]) == []


def test_the_plain_statements_make_the_same(
    stack: Stack, standing: Outbox, empty_schema: str
) -> None:
    with psycopg.connect(stack.database) as connection:
        connection.execute("CREATE TABLE pg_temp.here (n int)")
        connection.execute(script(empty_schema, ["billing"]).encode())
        connection.execute("SELECT n FROM here")  # its names are found as before
        assert catalog(connection, empty_schema) == catalog(connection, standing.schema)
        assert problems(connection, empty_schema, ["billing"]) == []
        connection.rollback()


@pytest.mark.parametrize("version", [m.version for m in outbox_migrations()])
def test_the_plain_statements_bring_an_older_one_up_to_date(
    stack: Stack, standing: Outbox, empty_schema: str, version: int
) -> None:
    upgrade = script(empty_schema, ["billing"], version).encode()
    newest = version == outbox_migrations()[-1].version
    with psycopg.connect(stack.database) as connection:
        make_old(connection, empty_schema, version)
        connection.execute(ADDED_THEN.replace(":schema", empty_schema).encode())
        advice = {p.advice for p in problems(connection, empty_schema) if p.wrong}
        way = f"run `oncepool outbox migrate`, or what it prints with --sql --from {version}"
        assert advice == (set() if newest else {way})
        connection.execute(upgrade)
        assert catalog(connection, empty_schema) == catalog(connection, standing.schema)
        assert problems(connection, empty_schema, ["billing"]) == []
        count = f"SELECT count(*) FROM {empty_schema}.requests"
        assert connection.execute(count.encode()).fetchall() == [(1,)]
        if newest:
            connection.execute(upgrade)  # registers the senders, once more
        else:
            with pytest.raises(psycopg.errors.RaiseException, match=f"of version {version}"):
                connection.execute(upgrade)
        connection.rollback()


def test_what_was_added_before_an_upgrade_by_plain_statements_is_sent_after_it(
    stack: Stack,
    empty_schema: str,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", empty_schema)
    name = topic()
    with psycopg.connect(stack.database) as connection:
        make_old(connection, empty_schema, 1)
        connection.execute(ADDED_THEN.replace(":schema", empty_schema).encode())
        connection.execute(script(empty_schema, [], 1).encode())
    route = Route(name, {"bootstrap.servers": stack.kafka})
    with Relay(stack.database, {"default": route}, schema=empty_schema):
        eventually(lambda: ids(stack, name) == ["early"], 60)
        with psycopg.connect(stack.database) as connection:
            outbox.add(connection, "t", {}, request_id="late")
        eventually(lambda: ids(stack, name) == ["early", "late"], 60)


@pytest.mark.parametrize(
    "damage,text,wrong",
    [
        ("DROP SCHEMA :schema CASCADE", "schema {} has no outbox", True),
        ("DROP TABLE :schema.senders", "{}.senders is missing", True),
        ("ALTER TABLE :schema.requests DROP next_at CASCADE", "{}.requests lacks next_at", True),
        ("ALTER TABLE :schema.requests DROP CONSTRAINT requests_id_key", "no unique index", True),
        ("ALTER TABLE :schema.shards DROP CONSTRAINT shards_pkey", "index on sender, shard", True),
        ("ALTER TABLE :schema.inbox DROP CONSTRAINT inbox_pkey", "unique index on n", True),
        ("DELETE FROM :schema.senders WHERE name = 'billing'", "billing is not registered", True),
        ("INSERT INTO :schema.schema_version VALUES (99, 'x')", "version 99, this Oncepool", True),
        ("DELETE FROM :schema.schema_version", "version 0, this Oncepool", True),
        ("DROP INDEX :schema.requests_unsent", "requests_unsent is missing", False),
        ("DROP INDEX :schema.requests_sent", "requests_sent is missing", False),
        ("DROP INDEX :schema.finished_conflicts", "finished_conflicts is missing", False),
        ("DROP FUNCTION :schema.add_requests", "{}.add_requests is missing", True),
        ("ALTER TABLE :schema.requests DISABLE TRIGGER ALL", "requests_added is missing", False),
        ("DROP VIEW :schema.all_requests; ALTER TABLE :schema.requests ALTER type TYPE varchar",
         "{}.requests.type is character varying NOT NULL, and should be text NOT NULL", True),
        ("ALTER TABLE :schema.requests ALTER state DROP DEFAULT", "state is text NOT NULL,", True),
        ("ALTER TABLE :schema.requests ALTER key SET NOT NULL", "key is bytea NOT NULL, and", True),
        ("ALTER TABLE :schema.inbox ALTER n DROP IDENTITY", "n is bigint NOT NULL, and", True),
        ("ALTER TABLE :schema.requests ADD tenant int NOT NULL", "tenant must have a value", False),
        ("ALTER TABLE :schema.requests DROP CONSTRAINT requests_state_check", "lacks CHECK", False),
        ("ALTER TABLE :schema.finished RESET (autovacuum_vacuum_scale_factor)",
         "it lacks autovacuum_vacuum_scale_factor=0.01", False),
        ("ALTER TABLE :schema.requests SET (autovacuum_vacuum_cost_delay = 20)",
         "it lacks autovacuum_vacuum_cost_delay=0", False),
        ("ALTER TABLE :schema.requests SET UNLOGGED", "after a crash of PostgreSQL", True),
        (OTHER_INDEX, "requests_unsent is another one", False),
        (OTHER_ADDING, "{}.add_requests is not that of this version", True),
        ("ALTER FUNCTION :schema.add_requests RESET ALL", "add_requests is not that", True),
        (OTHER_WAKING, "{}.wake_relays is not that of this version", False),
        (OTHER_TRIGGER, "requests_added is missing, disabled or another one", False),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(standing: Outbox, damage: str, text: str, wrong: bool) -> None:
    said = found(standing, damage, "billing")
    assert any(text.format(standing.schema) in what and w is wrong for what, w in said), said


@pytest.mark.parametrize(
    "harmless",
    [
        "ALTER TABLE :schema.requests ADD own text, ADD more int NOT NULL DEFAULT 1",
        "ALTER INDEX :schema.requests_unsent SET (fillfactor = 80)",
        "ALTER TABLE :schema.requests SET (fillfactor = 80)",
        "CREATE INDEX ON :schema.requests (reference)",
        "ALTER TABLE :schema.requests ADD CHECK (octet_length(payload) < 1000000)",
        "CREATE FUNCTION :schema.add_requests() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
)
def test_what_others_have_added_is_theirs(standing: Outbox, harmless: str) -> None:
    assert found(standing, harmless, "billing") == []


def test_a_function_that_a_tool_has_laid_out_anew_is_the_same(standing: Outbox) -> None:
    [row] = standing.rows(
        "SELECT pg_get_functiondef(oid) AS text FROM pg_proc"
        " WHERE pronamespace = ':schema'::regnamespace AND proname = 'add_requests'"
    )
    plain = "\n".join(line.strip() for line in row["text"].splitlines() if "--" not in line)
    assert plain.replace('"', "").count("\n") < row["text"].count("\n")
    assert found(standing, plain.replace('"', "").replace("\n", "\r\n")) == []


def test_what_is_defined_otherwise_keeps_no_relay_from_its_work(standing: Outbox) -> None:
    damage = "ALTER TABLE :schema.requests ALTER state DROP DEFAULT"
    assert found(standing, damage, relay=True) == []
    damage = "ALTER TABLE :schema.shards DROP CONSTRAINT shards_pkey"
    assert [wrong for _, wrong in found(standing, damage, relay=True)] == [True]


def test_a_newer_outbox_is_left_alone_and_takes_requests(outbox_: Outbox) -> None:
    outbox_.run("INSERT INTO :schema.schema_version VALUES (99, 'later')")
    outbox_.run("ALTER TABLE :schema.requests ADD later int DEFAULT 1")
    with psycopg.connect(outbox_.url) as connection:
        with pytest.raises(OutboxTooNew, match="version 99"):
            migrate(connection, outbox_.schema, [])
        outbox.add(connection, "t", {})
    assert len(outbox_.rows()) == 1


def test_the_commands(stack: Stack, empty_schema: str, tmp_path: Path) -> None:
    environment = {
        "ONCEPOOL_OUTBOX_DATABASE_URL": stack.database,
        "ONCEPOOL_OUTBOX_SCHEMA": empty_schema,
        "ONCEPOOL_OUTBOX_SENDERS": "billing, eu",
        "ONCEPOOL_CONFIG": "",
    }

    def oncepool(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli.app, ["outbox", *arguments], env=environment)
        return result.exit_code, result.output

    code, said = oncepool("check")
    assert (code, "has no outbox" in said) == (1, True)
    for command in (["list"], ["retry", "a"], ["drop", "a"], ["stats"],
                    ["prune", "--older-than", "30d", "--yes"]):  # fmt: skip
        code, said = oncepool(*command)
        assert (code, "run `oncepool outbox migrate`" in said) == (1, True), said
    code, sql = oncepool("migrate", "--sql")
    assert (code, sql) == (0, script(empty_schema, ["billing", "eu"]))
    assert oncepool("migrate", "--sql", "--from", "4") == (
        0, script(empty_schema, ["billing", "eu"], 4),
    )  # fmt: skip
    code, said = oncepool("migrate", "--sql", "--from", "99")
    assert (code, "knows 1 to" in said) == (1, True), said
    assert oncepool("migrate", "--from", "4")[0] == 2
    assert oncepool("check")[0] == 1  # printed, not made
    applied = f"schema {empty_schema}: applied {', '.join(MIGRATIONS)}\n"
    assert oncepool("migrate") == (0, applied)
    assert oncepool("migrate") == (0, f"schema {empty_schema}: nothing to do\n")
    assert oncepool("check") == (0, f"schema {empty_schema}: all there\n")
    assert oncepool("check", "--json", "--outbox-senders", "other")[0] == 1
