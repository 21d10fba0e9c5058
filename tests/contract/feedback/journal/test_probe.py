from __future__ import annotations

import psycopg
import pytest

from feedback.journal.probe import refused_work
from stack import Stack


def test_a_probe_leaves_nothing(stack: Stack, schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as connection:
        assert refused_work(connection, schema=schema) is None
        found = connection.execute(f"SELECT count(*) FROM {schema}.dead_letters").fetchone()
    assert found == (0,)


def test_a_server_that_is_read_only_takes_none(stack: Stack, schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = on")
        assert refused_work(connection, schema=schema) is not None
        connection.execute("SET default_transaction_read_only = off")
        assert refused_work(connection, schema=schema) is None


def test_a_lost_connection_is_no_answer(stack: Stack, schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as connection:
        with psycopg.connect(stack.database, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
        with pytest.raises(psycopg.Error):
            refused_work(connection, schema=schema)


@pytest.mark.parametrize("mode", ["SHARE", "ACCESS EXCLUSIVE"])
def test_a_lock_on_its_table_is_no_word_about_writes(stack: Stack, schema: str, mode: str) -> None:
    """As while an index is rebuilt. What is read-only shows all the same."""
    with (
        psycopg.connect(stack.database) as operator,
        psycopg.connect(stack.database, autocommit=True) as connection,
    ):
        connection.execute("SET statement_timeout = '5s'")  # as the maintenance process has one
        operator.execute(f"LOCK TABLE {schema}.dead_letters IN {mode} MODE")
        assert refused_work(connection, schema=schema) is None
        connection.execute("SET default_transaction_read_only = on")
        assert refused_work(connection, schema=schema) is not None
        assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_a_server_that_is_slow_may_take_writes(stack: Stack, schema: str) -> None:
    with (
        psycopg.connect(stack.database) as operator,
        psycopg.connect(stack.database, autocommit=True) as connection,
    ):
        operator.execute(f"LOCK TABLE {schema}.dead_letters IN SHARE MODE")
        connection.execute("SET statement_timeout = '100ms'")
        assert refused_work(connection, schema=schema) is None
