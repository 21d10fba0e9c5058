"""How it starts on a schema, and what it tells of its database."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from feedback.errors import JournalError
from feedback.journal.migrations import migrate
from processing.ipc.frames import DatabaseState, JournalUnusable, ProbeDatabase
from stack import Stack
from tests.support.maintenance import StartMaintenance
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy


def test_ready_says_how_the_schema_stands(start: StartMaintenance, schema: str) -> None:
    assert start(schema=schema).ready().schema == "ok"


def test_a_missing_schema_is_named_and_not_made(
    start: StartMaintenance, stack: Stack, empty_schema: str
) -> None:
    ready = start(schema=empty_schema).ready()

    assert ready.schema == "missing"
    assert "oncepool migrate" in ready.detail
    with psycopg.connect(stack.database) as database:
        found = database.execute("SELECT to_regnamespace(%s)", [empty_schema]).fetchone()
    assert found == (None,)


def test_migrates_where_the_settings_say_so(start: StartMaintenance, empty_schema: str) -> None:
    assert start(schema=empty_schema, migrate=True).ready().schema == "ok"


def test_a_newer_schema_is_refused(start: StartMaintenance, stack: Stack, schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(f"UPDATE {schema}.schema_version SET version = version + 1000")

    assert start(schema=schema).ready().schema == "too_new"


def test_an_unreachable_database_is_told_and_then_found(
    start: StartMaintenance, schema: str, proxy: Proxy, through: str
) -> None:
    proxy.cut()
    maintenance = start(schema=schema, database_url=through)
    assert maintenance.ready().schema == "unreachable"

    proxy.mend()

    assert maintenance.wait_for(DatabaseState).up


def test_an_unusable_schema_found_late_is_fatal(
    start: StartMaintenance, empty_schema: str, proxy: Proxy, through: str
) -> None:
    proxy.cut()
    maintenance = start(schema=empty_schema, database_url=through)
    assert maintenance.ready().schema == "unreachable"

    proxy.mend()

    assert "oncepool migrate" in maintenance.wait_for(JournalUnusable).detail


def test_answers_a_probe_when_the_database_was_never_away(
    start: StartMaintenance, schema: str
) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()

    maintenance.send(ProbeDatabase())
    assert maintenance.wait_for(DatabaseState, 1).up
    maintenance.send(ProbeDatabase())
    assert maintenance.wait_for(DatabaseState, 2).up


def test_tells_when_the_database_goes_and_when_it_is_back(
    start: StartMaintenance, schema: str, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through)
    maintenance.ready()
    proxy.cut()
    maintenance.send(ProbeDatabase())
    assert not maintenance.wait_for(DatabaseState, 1).up

    proxy.mend()

    assert maintenance.wait_for(DatabaseState, 2).up


def test_maintenance_itself_finds_the_database_away(
    start: StartMaintenance, schema: str, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through, sweep_interval=0.1)
    maintenance.ready()

    proxy.cut()

    assert not maintenance.wait_for(DatabaseState, 1).up


def test_a_database_that_hangs_is_told_and_found_again(
    start: StartMaintenance, schema: str, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through, hung_after=0.5)
    maintenance.ready()

    proxy.hang()
    maintenance.send(ProbeDatabase())
    assert not maintenance.wait_for(DatabaseState, 1).up

    proxy.mend()
    assert maintenance.wait_for(DatabaseState, 2).up


def test_a_database_that_hangs_while_a_connection_is_set_up_is_told_and_found_again(
    start: StartMaintenance, schema: str, proxy: Proxy, through: str
) -> None:
    """It has let in who connects, and does not answer the first statement."""
    proxy.wish(lambda said: b"set_config" in said, delay=120.0)
    maintenance = start(schema=schema, database_url=through, hung_after=0.5)
    assert maintenance.ready().schema in ("ok", "unreachable")
    maintenance.send(ProbeDatabase())
    assert maintenance.wait_for(DatabaseState).up


def test_a_database_that_takes_no_writes_is_away(
    start: StartMaintenance, own_database: OwnDatabase
) -> None:
    migrate(own_database.url, "journal")
    maintenance = start(schema="journal", database_url=own_database.url, sweep_interval=0.1)
    assert maintenance.ready().schema == "ok"

    own_database.set_read_only(read_only=True)
    assert not maintenance.wait_for(DatabaseState, 1).up
    maintenance.send(ProbeDatabase())
    assert not maintenance.wait_for(DatabaseState, 2).up

    own_database.set_read_only(read_only=False)
    assert maintenance.wait_for(DatabaseState, 3).up


def test_a_read_only_database_is_no_schema_that_is_missing(
    start: StartMaintenance, own_database: OwnDatabase
) -> None:
    """It would end the instance for good, also where a failover takes a few seconds."""
    own_database.set_read_only(read_only=True)
    maintenance = start(schema="journal", database_url=own_database.url, migrate=True)
    assert maintenance.ready().schema == "unreachable"

    own_database.set_read_only(read_only=False)

    assert maintenance.wait_for(DatabaseState).up


def test_a_table_that_is_gone_is_named_and_is_no_disk_that_is_full(
    start: StartMaintenance, own_database: OwnDatabase
) -> None:
    migrate(own_database.url, "journal")
    maintenance = start(schema="journal", database_url=own_database.url, sweep_interval=0.1)
    assert maintenance.ready().schema == "ok"
    with psycopg.connect(own_database.url, autocommit=True) as operator:
        operator.execute("ALTER TABLE journal.dead_letters RENAME TO put_away")
        maintenance.send(ProbeDatabase())
        away = maintenance.wait_for(DatabaseState)
        assert not away.up
        assert "lacks journal.dead_letters" in away.detail
        with pytest.raises(JournalError, match=r"lacks journal\.dead_letters"):
            migrate(own_database.url, "journal")
        operator.execute("ALTER TABLE journal.put_away RENAME TO dead_letters")
    assert maintenance.wait_for(DatabaseState, 2).up


def test_a_user_without_rights_is_told_to_look_at_them(
    start: StartMaintenance, own_database: OwnDatabase
) -> None:
    migrate(own_database.url, "journal")
    with psycopg.connect(own_database.url, autocommit=True) as operator:
        operator.execute("CREATE ROLE nobody_much LOGIN")
        try:
            url = make_conninfo(own_database.url, options="-c role=nobody_much")
            ready = start(schema="journal", database_url=url).ready()
            assert "permission denied" in ready.detail
            assert "look at the rights of its user" in ready.detail
        finally:
            operator.execute("DROP ROLE nobody_much")


def test_a_connection_that_ends_is_no_outage(
    start: StartMaintenance, own_database: OwnDatabase
) -> None:
    migrate(own_database.url, "journal")
    maintenance = start(schema="journal", database_url=own_database.url, sweep_interval=0.1)
    maintenance.ready()
    for number in range(1, 6):
        assert own_database.end_connections("oncepool maintenance") == 1
        maintenance.send(ProbeDatabase())
        assert maintenance.wait_for(DatabaseState, number).up
