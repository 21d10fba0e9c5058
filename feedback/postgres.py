"""Connections to PostgreSQL: the one place that opens them, and that cuts them."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql

from feedback.postgres_times import TimesCursor

Connection: TypeAlias = psycopg.Connection[Any]

CONNECT_TIMEOUT: Final = 5
"""Seconds."""
_LONGEST_TIMEOUT: Final = 2**31 - 1  # milliseconds
_IDLE, _INTERVAL, _COUNT = 10, 5, 3
"""Of keepalives, on both sides: a peer that is silent for 25 s is gone."""
_USER_TIMEOUT: Final = 30
"""Seconds after which a peer is gone that has not confirmed what was sent: while such bytes are on
their way the kernel sends no keepalives, but the same again for a quarter of an hour."""
_SERVER_SIDE: Final = {
    "tcp_keepalives_idle": f"{_IDLE}s",
    "tcp_keepalives_interval": f"{_INTERVAL}s",
    "tcp_keepalives_count": f"{_COUNT}",
    "tcp_user_timeout": f"{_USER_TIMEOUT}s",
}
"""The same of the server's end, or it keeps the locks of a machine that has vanished for hours.
Settings of the session and no start-up options, which poolers refuse; through a Unix socket they
are ignored."""

_LET_LIVE: Final = {"idle_session_timeout": 140_000, "transaction_timeout": 170_000}
"""What a database or a role may end sessions and transactions by that are at work, or wait for it;
and since which version."""
_FORMS: Final = {
    "DateStyle": "ISO",
    "array_nulls": "on",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
}
"""Whatever the database or the role has: psycopg reads times in no other form, and writes NULL in
an array as that word; of seconds since the epoch all digits count; and without the last, bytes in
an array in text form would be escaped once more."""


def open_connection(
    url: str,
    name: str,
    *,
    timeouts: Mapping[str, float] | None = None,
    prepare_threshold: int | None = None,
    connect_timeout: int = CONNECT_TIMEOUT,
    made: Callable[[Connection], object] = lambda _: None,
) -> Connection:
    """A connection in autocommit mode. Raises psycopg.OperationalError.

    Its cursors read times beyond all clocks as the nearest ones that can be counted with.
    `name` is what pg_stat_activity shows. `timeouts` are settings of the session in seconds, as
    lock_timeout; 0 = none. A transaction takes as long as it does, whatever the database has: what
    was sent or run in one that is ended would be again, for ever. So does what comes between two of
    them, as a call outside. `prepare_threshold` is how often a statement runs before the server
    keeps it, plan included; None = never, as plans made while tables were empty are bad later.
    `made` has it before its first statement, which nothing else bounds: so it can be cut.
    """
    connection = psycopg.connect(
        url,
        autocommit=True,
        cursor_factory=TimesCursor,
        prepare_threshold=prepare_threshold,
        connect_timeout=connect_timeout,
        application_name=name,
        # Whatever the database has, or the environment says: rows are also made here as bytes.
        client_encoding="utf8",
        keepalives_idle=_IDLE,
        keepalives_interval=_INTERVAL,
        keepalives_count=_COUNT,
        tcp_user_timeout=_USER_TIMEOUT * 1000,
    )
    # Whatever the database has: in any other, who was waited for makes a transaction fail.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    settings = _session_settings(connection.info.server_version, timeouts or {})
    try:
        made(connection)
        connection.execute(
            "SELECT set_config(name, value, false)"
            " FROM unnest(%s::text[], %s::text[]) AS s(name, value)",
            [list(settings), list(settings.values())],
        )
    except BaseException:
        connection.close()
        raise
    return connection


def _session_settings(version: int, timeouts: Mapping[str, float]) -> dict[str, str]:
    wanted = {name: f"{milliseconds(seconds)}ms" for name, seconds in timeouts.items()}
    lives = {name: "0" for name, since in _LET_LIVE.items() if version >= since}
    return lives | _SERVER_SIDE | _FORMS | wanted


def listen(connection: Connection, channel: str) -> bool:
    """Has notifications of a channel come from now on; False where none can. Raises psycopg.Error.

    Behind a proxy that pools transactions a session is somebody else's next: what it listens to
    would be told to whoever has it, and psycopg keeps what nobody takes.
    """
    [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
    if pid != connection.info.backend_pid:  # a proxy's own sessions have numbers of their own
        return False
    try:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    except psycopg.errors.FeatureNotSupported:
        return False
    return True


@contextmanager
def bounded_transaction(connection: Connection, timeouts: Mapping[str, float]) -> Iterator[None]:
    """One, in autocommit mode; undone where it raises. Raises psycopg.Error.

    Its bounds, in seconds, come with its BEGIN, and end with it. Behind a proxy that pools
    transactions the settings of a session stay with a connection that is somebody else's next.
    """
    # Several statements in one message, which none that is prepared has.
    connection.execute(
        b"BEGIN ISOLATION LEVEL READ COMMITTED" + local_settings(timeouts), prepare=False
    )
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            connection.rollback()
        raise
    connection.commit()


def local_settings(timeouts: Mapping[str, float]) -> bytes:
    """What goes with a BEGIN to have these bounds, in seconds, in that transaction alone."""
    return b"".join(
        b"; SET LOCAL %b = %d" % (name.encode(), milliseconds(seconds))
        for name, seconds in timeouts.items()
    )


def cut(connection: Connection) -> None:
    """Ends a connection under the statement that it runs, which raises then. From any thread."""
    # A second descriptor of the same socket: the other thread's read ends, nothing is closed.
    with (
        suppress(psycopg.Error, OSError),
        socket.socket(fileno=os.dup(connection.fileno())) as twin,
    ):
        twin.shutdown(socket.SHUT_RDWR)


def one_line(error: Exception) -> str:
    """What an error says, which comes from servers over several lines; its type if it is silent."""
    return " ".join(str(error).split()) or type(error).__name__


def milliseconds(seconds: float) -> int:
    """Not more than PostgreSQL takes, about 25 days; more than 0 stays that, as 0 is no limit."""
    return math.ceil(min(seconds * 1000, _LONGEST_TIMEOUT))
