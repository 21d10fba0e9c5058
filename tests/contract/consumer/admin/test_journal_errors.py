"""What commands and the gateway say of a database's errors, of a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from consumer.admin.journal import (
    NOTHING_DONE,
    JournalContended,
    JournalRefused,
    JournalUnreachable,
    explained,
)
from feedback.postgres import Connection, open_connection
from tests.support.journal import Journal

LOCK = "SELECT FROM {}.requests WHERE id = '{}' FOR UPDATE"


@pytest.fixture
def connection(journal: Journal) -> Iterator[Connection]:
    with open_connection(journal.url, "test") as connection:
        yield connection


def test_a_deadlock_is_no_outage(journal: Journal, connection: Connection) -> None:
    journal.put("a")
    journal.put("b")
    first, second = (LOCK.format(journal.schema, name) for name in "ab")

    def cross(other: Connection) -> None:
        other.execute("SET deadlock_timeout = '60s'")  # so it is the other one that is ended
        with other.transaction():
            other.execute(second)
            other.execute(first)

    def meet() -> None:
        with explained(connected=True), connection.transaction():
            connection.execute(first)
            journal.rival(cross)
            connection.execute(second)

    with pytest.raises(JournalContended, match="deadlock detected"):
        meet()


def test_a_statement_that_is_cancelled_is_no_outage(connection: Connection) -> None:
    connection.execute("SET statement_timeout = '50ms'")
    with pytest.raises(JournalContended, match="statement timeout"), explained(connected=True):
        connection.execute("SELECT pg_sleep(60)")


@pytest.mark.parametrize(
    "state,said,undone",
    [
        ("53100", "is out of what it needs; give it more", True),
        ("57P03", "does not answer", False),
        ("08006", "does not answer", False),
    ],
)
def test_a_server_that_works_for_nobody_is_one(
    connection: Connection, state: str, said: str, *, undone: bool
) -> None:
    text = f"DO $$ BEGIN RAISE EXCEPTION 'so' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(JournalUnreachable, match=said) as caught, explained(connected=True):
        connection.execute(text)
    assert isinstance(caught.value, NOTHING_DONE) == undone


@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"dbname": "nowhere"}])
def test_who_is_not_let_in_hears_that_a_server_is_there(
    journal: Journal, wrong: dict[str, str]
) -> None:
    url = make_conninfo(journal.url, **wrong)
    said = r"refused the connection; .*FATAL: "
    with pytest.raises(JournalUnreachable, match=said) as caught, explained():
        open_connection(url, "test")
    assert "does not answer" not in str(caught.value)


def test_an_answer_that_never_came_leaves_it_open(journal: Journal, connection: Connection) -> None:
    journal.run("SELECT pg_terminate_backend(%s, 20000)", connection.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(JournalUnreachable, match="look again"), explained(connected=True):
        connection.execute("SELECT 1")


def test_what_is_about_the_statement_is_refused(connection: Connection) -> None:
    with pytest.raises(JournalRefused, match="refused: division by zero") as refused, explained():
        connection.execute("SELECT 1 / 0")
    assert not isinstance(refused.value, JournalContended)
