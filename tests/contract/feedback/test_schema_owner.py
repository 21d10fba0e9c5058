"""Who owns a schema, as a database administrator made it, needs no right on the database."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import psycopg
import pytest

from feedback.journal import migrations as journal
from feedback.outbox import migrations as outbox
from feedback.schema_versions import found_version
from tests.support.own_database import OwnDatabase


def _outbox(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        outbox.migrate(connection, schema, ["billing"])


def _outbox_as_sql(url: str, schema: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(outbox.script(schema, ["billing"]).encode())


@pytest.mark.parametrize("migrate", [journal.migrate, _outbox, _outbox_as_sql])
def test_its_owner_makes_the_tables(
    own_database: OwnDatabase, migrate: Callable[[str, str], object]
) -> None:
    url = own_database.url
    owner = f"owner_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {owner}".encode())
        administrator.execute(f"CREATE SCHEMA pay AUTHORIZATION {owner}".encode())
        try:
            as_owner = f"{url}{'&' if '?' in url else '?'}options=-c%20role%3D{owner}"
            migrate(as_owner, "pay")
            assert found_version(administrator, "pay") > 0
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                migrate(as_owner, "of_nobody")
        finally:
            administrator.execute(f"DROP OWNED BY {owner}; DROP ROLE {owner}".encode())
