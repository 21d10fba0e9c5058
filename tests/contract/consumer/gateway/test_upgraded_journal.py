"""A journal that a newer version upgrades beside a gateway, which is replaced later."""

from __future__ import annotations

import asyncio
import logging

import psycopg
import pytest

from consumer.admin.journal import connect
from consumer.admin.lookup import look_up
from consumer.config.loader import load_settings
from consumer.config.settings import Settings
from consumer.gateway.operators import JournalOperator
from consumer.gateway.parts import journal_threads
from feedback.errors import JournalError, SchemaTooNew
from feedback.journal.migrations import migrate
from tests.support.own_database import OwnDatabase

SCHEMA = "oncepool"
WARNING = "a newer version has upgraded the journal"


@pytest.fixture
def settings(own_database: OwnDatabase) -> Settings:
    migrate(own_database.url, SCHEMA)
    return load_settings({"database_url": own_database.url, "database_schema": SCHEMA}, environ={})


def change(settings: Settings, statement: str) -> None:
    with psycopg.connect(settings.database_url, autocommit=True) as connection:
        connection.execute(statement.encode())


def upgrade(settings: Settings) -> None:
    change(
        settings,
        f"INSERT INTO {SCHEMA}.schema_version (version, name)"
        f" SELECT max(version) + 1, 'next' FROM {SCHEMA}.schema_version",
    )


def ask(settings: Settings) -> str | None:
    """What a gateway's new connection finds."""
    threads = journal_threads(settings, 1)
    try:
        return asyncio.run(JournalOperator(settings, threads).type_of("nobody"))
    finally:
        threads.close()


def test_a_gateway_goes_on_with_a_journal_that_a_newer_version_has_upgraded(
    settings: Settings, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whichever of its connections has seen it before; and cancels look at statuses in it."""
    caplog.set_level(logging.WARNING)
    assert ask(settings) is None
    upgrade(settings)
    assert ask(settings) is None
    assert ask(settings) is None
    assert look_up(settings, ["nobody"]) == [None]
    assert (caplog.text + capfd.readouterr().err).count(WARNING) == 1


def test_one_that_is_too_new_at_the_first_look_is_refused(settings: Settings) -> None:
    upgrade(settings)
    with pytest.raises(SchemaTooNew):
        ask(settings)
    with pytest.raises(SchemaTooNew), connect(settings):
        pass


def test_one_that_was_known_and_lacks_something_is_refused(settings: Settings) -> None:
    assert ask(settings) is None
    change(settings, f"ALTER TABLE {SCHEMA}.transitions RENAME TO elsewhere")
    with pytest.raises(JournalError, match=r"lacks oncepool\.transitions"):
        ask(settings)
