from __future__ import annotations

import os
import socket

import psycopg

from feedback.journal.connections import open_connection
from stack import Stack
from tests.support.own_database import OwnDatabase
from tests.support.waiting_rows import WaitingRows


def test_a_peer_that_is_gone_is_noticed_whatever_the_connection_waits_for(stack: Stack) -> None:
    """Keepalives stop while sent bytes are unconfirmed: then the kernel's own patience counts."""
    with (
        open_connection(stack.database, "test") as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as twin,
    ):
        idle = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        options = [twin.getsockopt(socket.IPPROTO_TCP, option) for option in idle]
        assert options == [10, 5, 3]
        assert twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


def test_the_server_notices_a_machine_that_is_gone_as_soon(stack: Stack) -> None:
    """It would keep the locks of its transactions for hours."""
    names = ("idle", "interval", "count")
    with open_connection(stack.database, "test", timeouts={"lock_timeout": 1.5}) as connection:
        shown = [
            connection.execute("SELECT current_setting(%s)", [name]).fetchone()
            for name in (
                *(f"tcp_keepalives_{n}" for n in names),
                "tcp_user_timeout",
                "lock_timeout",
            )
        ]
    assert shown == [("10",), ("5",), ("3",), ("30000",), ("1500ms",)]


def test_a_transaction_takes_as_long_as_it_does_whatever_the_database_has(
    own_database: OwnDatabase,
) -> None:
    """A relay would send the same batch for ever."""
    own_database.set("transaction_timeout", "100ms")
    with open_connection(own_database.url, "test") as connection, connection.transaction():
        for _ in range(2):
            connection.execute("SELECT pg_sleep(0.1)")


def test_a_session_may_be_idle_for_as_long_as_a_call_takes_whatever_the_database_has(
    own_database: OwnDatabase,
) -> None:
    """Between two statements a worker asks a check, or makes a call."""
    with psycopg.connect(own_database.url, autocommit=True) as server:
        own_database.set("idle_session_timeout", "100ms")
        with open_connection(own_database.url, "test") as connection:
            server.execute("SELECT pg_sleep(0.3)")
            connection.execute("SELECT 1")


def test_transactions_see_what_others_commit_whatever_the_database_has(
    stack: Stack, rows: WaitingRows
) -> None:
    """default_transaction_isolation may be stricter for an application that shares the database."""
    rows.add("a", state="failed")
    url = f"{stack.database}?options=-cdefault_transaction_isolation%3Dserializable"
    with open_connection(url, "test") as connection, connection.transaction():
        connection.execute(f"SELECT FROM {rows.schema}.requests".encode())
        rows.query(f"UPDATE {rows.schema}.requests SET run = 5")
        moved = connection.execute(f"UPDATE {rows.schema}.requests SET run = run + 1".encode())
        assert moved.rowcount == 1
    assert rows.columns("a", "run") == (6,)
