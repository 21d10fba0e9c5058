"""What a handler's cursor and its connection refuse before anything is sent."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast
from unittest.mock import Mock

import psycopg
import pytest
from psycopg.rows import dict_row

from processing.worker import guarded_cursor, sql_noise
from processing.worker.failures import Failures
from processing.worker.guarded_cursor import GuardedConnection, check
from processing.worker.sql_noise import without_noise
from processing.worker.transaction_control import (
    ConnectionChangeRefused,
    TransactionControlRefused,
    control_of,
)


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "commit;",
        "SELECT 1; ROLLBACK",
        "/* x */ END",
        "-- x\nABORT",
        "BEGIN",
        "START  TRANSACTION",
        "PREPARE TRANSACTION 'x'",
        "ROLLBACK WORK",
        "RELEASE oncepool",
        "RELEASE SAVEPOINT oncepool",
        "ROLLBACK TO oncepool",
        "SAVEPOINT oncepool",
        'ROLLBACK TO SAVEPOINT "oncepool"',
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; END",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; COMMIT",
        "SELECT 1 AS begin; COMMIT; SELECT 1 AS atomic; END",
    ],
)
def test_what_ends_the_transaction_or_the_executors_savepoint(statement: str) -> None:
    assert control_of(statement).ends


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'COMMIT'",
        "SELECT ';COMMIT'",
        "INSERT INTO commits VALUES (1)",
        "SAVEPOINT mine",
        "ROLLBACK TO SAVEPOINT mine",
        "RELEASE mine",
        "SAVEPOINT oncepool_kit",
        "GRANT SELECT ON t TO oncepool",
        "SELECT * FROM oncepool.requests",
        "DO $$ BEGIN PERFORM 1; END $$",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN a THEN 1 END; END",
        "SELECT 1; create or replace procedure p()\nbegin  atomic; end;",
    ],
)
def test_what_does_not(statement: str) -> None:
    assert not control_of(statement).ends


@pytest.mark.parametrize(
    "statement, about",
    [
        ("SAVEPOINT mine", True),
        ("SELECT 1; rollback to mine", True),
        ("/* x */ RELEASE mine", True),
        ("INSERT INTO release VALUES ('; SAVEPOINT mine')", False),
        ("SELECT savepoint FROM t -- ;ROLLBACK TO mine", False),
    ],
)
def test_statements_about_savepoints_are_noted_each_time(statement: str, about: bool) -> None:
    failures, connection = Failures(), cast("Any", None)
    for _ in range(2):
        assert check(statement, connection, failures) == statement
    assert failures.savepoints == 2 * about


class _Info:
    server_version = 180000
    pgconn = "libpq"


class _Connection:
    """Enough of a psycopg connection."""

    pgconn = "libpq"
    info = _Info()
    autocommit = True

    def tpc_commit(self) -> None:
        """Never reached."""

    @property
    def connection(self) -> _Connection:
        """As psycopg's."""
        return self

    def add_notice_handler(self, callback: Any) -> None:
        """Never reached."""

    def notifies(self) -> str:
        return "notifies"


@pytest.fixture
def guarded() -> Any:
    connection: psycopg.Connection[Any] = _Connection()  # type: ignore[assignment]
    return GuardedConnection(connection)


def test_ways_round_the_guard_are_refused(guarded: Any) -> None:
    with pytest.raises(TransactionControlRefused, match=r"tpc_commit.* would end"):
        _ = guarded.tpc_commit
    for call in (guarded.commit, guarded.rollback, guarded.close):
        with pytest.raises(TransactionControlRefused, match="would end"):
            call()
    with (
        pytest.raises(TransactionControlRefused, match="oncepool"),
        guarded.transaction("oncepool"),
    ):
        raise AssertionError
    for owner in (guarded, guarded.info):  # psycopg's own parts ask for it, too
        with pytest.raises(TransactionControlRefused, match=r"pgconn' leads round .*use tx"):
            _ = owner.pgconn


def test_what_would_hold_for_other_requests_is_refused_with_what_to_do_instead(
    guarded: Any,
) -> None:
    with pytest.raises(ConnectionChangeRefused, match=r"cursor\(row_factory="):
        guarded.row_factory = dict_row
    for change in ("autocommit", "prepare_threshold"):
        with pytest.raises(ConnectionChangeRefused, match=change):
            setattr(guarded, change, None)
    for name in ("add_notice_handler", "add_notify_handler", "set_isolation_level"):
        with pytest.raises(ConnectionChangeRefused, match=name):
            getattr(guarded, name)
    assert guarded.connection is guarded, "psycopg's own is that"


def test_the_rest_of_the_connection_is_there(guarded: Any) -> None:
    assert guarded.notifies() == "notifies"
    assert guarded.info.server_version == 180000
    assert guarded.autocommit is True


def test_statements_that_hold_their_values_are_not_kept() -> None:
    """Each is another one: a thousand of them, of a megabyte each, would stay for ever."""
    long = f"INSERT INTO t VALUES ('{'x' * 100_000}')"
    connection: Any = None
    assert check(long, connection) is long
    assert check("SELECT 'short'", connection) == "SELECT 'short'"
    assert "SELECT 'short'" in guarded_cursor._known
    assert long not in guarded_cursor._known
    with pytest.raises(TransactionControlRefused):
        check(f"{long}; COMMIT", connection)


def test_what_a_backslash_hides_is_looked_at_once_for_each_setting_of_the_session() -> None:
    plain, escaping = Mock(), Mock()
    plain.pgconn.parameter_status.return_value = b"on"
    escaping.pgconn.parameter_status.return_value = b"off"
    hides = r"SELECT '\'; ROLLBACK; --'"
    with pytest.raises(TransactionControlRefused):
        check(hides, plain)
    assert check(hides, escaping) is hides
    assert check("".join(hides), escaping) is hides
    with pytest.raises(TransactionControlRefused):
        check(hides, plain)


@pytest.mark.parametrize(
    "statement, said",
    [
        ("SELECT 'it''s' -- COMMIT\n, 1", "SELECT ''''  \n, 1"),
        ("SELECT /* ; */ 1 /* open", "SELECT   1 /* open"),
        ("DO $a$ $b$ ; $a$; COMMIT $b$", "DO ''; COMMIT $b$"),
        ("SELECT a$b$c; COMMIT", "SELECT a$b$c; COMMIT"),
        ("SELECT $x$y$ $y$", "SELECT $x$y$ $y$"),
        ("SELECT $1$, a$b$, '' AS é$b$", "SELECT $1$, a$b$, '' AS é$b$"),
        ("SELECT $$'$$, $é$ ; $é$", "SELECT '', ''"),
        ('SAVEPOINT "oncepool"', "SAVEPOINT oncepool"),
        ('SAVEPOINT "a""oncepool"', "SAVEPOINT ''"),
        ('SAVEPOINT "oncepool"";x"', "SAVEPOINT ''"),
        ("SELECT 'a' 'open", "SELECT '' 'open"),
        ('SELECT "a""open', 'SELECT "a""open'),
        ("/* a /* b */ ; */ c", "  c"),
        ("a --b\r, c", "a  \r, c"),
        (r"SELECT E'\'', e'a''\'', date'\', 'a'", "SELECT '', '', date'', ''"),
        (r"SELECT E'\\', U&'\', N'\'", "SELECT '', U&'', N''"),
        ("SELECT E'a' --b\n '\\'', 'a'\n'\\'", "SELECT '', ''\n''"),
        (r"SELECT 'a', E'\', ; open", r"SELECT '', E'\', ; open"),
        ("--", " "),
        ("", ""),
    ],
)
def test_what_is_quoted_and_what_is_not(statement: str, said: str) -> None:
    assert without_noise(statement, "oncepool") == said


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT " + "/* " * 200_000,
        "SELECT " + " ".join(f"$t{n}$" for n in range(200_000)),
        "SELECT " + "$" * 200_001,
        "SELECT " + '""' * 200_000 + '"',
        "SELECT E'" + r"\'" * 200_000,
    ],
    ids=["comments", "tags", "dollars", "identifiers", "escapes"],
)
def test_what_is_never_closed_is_looked_for_once(
    monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    found, look = list[int](), sql_noise._end

    def counted(*of: Any) -> int:
        found.append(look(*of))
        return found[-1]

    monkeypatch.setattr(sql_noise, "_end", counted)
    without_noise(statement, "oncepool")
    assert found.count(-1) <= 1


@pytest.mark.parametrize("text", ["'" + "x" * 2_000_000, "E'" + r"\'" * 1_000_000])
def test_a_long_text_is_looked_through_in_little_memory(text: str) -> None:
    statement = f"INSERT INTO t VALUES ({text}')"
    tracemalloc.start()
    try:
        assert not control_of(statement).ends
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(statement)
