"""Outboxes made, upgraded and checked."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from consumer import cli
from feedback import outbox
from feedback.errors import OutboxTooNew
from feedback.outbox import checks
from feedback.outbox.checks import problems
from feedback.outbox.migrations import migrate, script
from stack import Stack
from tests.support.journal import Rival
from tests.support.outbox import Outbox
from tests.support.waiting import eventually

MIGRATIONS = [
    "0001_requests",
    "0002_relay",
    "0003_answers",
    "0004_conflicts",
    "0005_adding",
    "0006_long_keys",
]


def found(outbox_: Outbox, *senders: str) -> list[tuple[str, bool]]:
    with psycopg.connect(outbox_.url) as connection:
        return [(p.text, p.wrong) for p in problems(connection, outbox_.schema, senders)]


def test_the_check_knows_each_column_that_there_is(outbox_: Outbox) -> None:
    columns = outbox_.rows(
        "SELECT table_name, array_agg(column_name::text) AS names"
        " FROM information_schema.columns WHERE table_schema = ':schema' GROUP BY 1"
    )
    assert {row["table_name"]: set(row["names"]) for row in columns} == {
        name: set(names.split()) for name, names in checks.COLUMNS.items()
    }
    assert found(outbox_, "billing") == []


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


def test_the_plain_statements_make_the_same(stack: Stack, empty_schema: str) -> None:
    with psycopg.connect(stack.database) as connection:
        connection.execute("CREATE TABLE pg_temp.here (n int)")
        connection.execute(script(empty_schema, ["billing"]).encode())
        connection.execute("SELECT n FROM here")  # its names are found as before
        assert problems(connection, empty_schema, ["billing"]) == []
        connection.rollback()


@pytest.mark.parametrize(
    "damage,text,wrong",
    [
        ("DROP SCHEMA :schema CASCADE", "schema {} has no outbox", True),
        ("DROP TABLE :schema.senders", "{}.senders is missing", True),
        ("ALTER TABLE :schema.requests DROP next_at CASCADE", "{}.requests lacks next_at", True),
        ("ALTER TABLE :schema.requests DROP CONSTRAINT requests_id_key", "no unique index", True),
        ("DELETE FROM :schema.senders WHERE name = 'billing'", "billing is not registered", True),
        ("INSERT INTO :schema.schema_version VALUES (99, 'x')", "version 99, this Oncepool", True),
        ("DELETE FROM :schema.schema_version", "version 0, this Oncepool", True),
        ("DROP INDEX :schema.requests_unsent", "requests_unsent is missing", False),
        ("DROP INDEX :schema.requests_sent", "requests_sent is missing", False),
        ("DROP INDEX :schema.finished_conflicts", "finished_conflicts is missing", False),
        ("DROP FUNCTION :schema.add_requests", "{}.add_requests is missing", True),
        ("ALTER TABLE :schema.requests DISABLE TRIGGER ALL", "requests_added is missing", False),
    ],
)
def test_what_is_wrong_is_named(outbox_: Outbox, damage: str, text: str, wrong: bool) -> None:
    outbox_.run(damage)
    said = found(outbox_, "billing")
    assert any(text.format(outbox_.schema) in what and w is wrong for what, w in said), said


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
    assert oncepool("check")[0] == 1  # printed, not made
    applied = f"schema {empty_schema}: applied {', '.join(MIGRATIONS)}\n"
    assert oncepool("migrate") == (0, applied)
    assert oncepool("migrate") == (0, f"schema {empty_schema}: nothing to do\n")
    assert oncepool("check") == (0, f"schema {empty_schema}: all there\n")
    assert oncepool("check", "--json", "--outbox-senders", "other")[0] == 1
