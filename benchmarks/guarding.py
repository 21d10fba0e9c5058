"""What guarding `tx` adds to a statement, a call and a cursor: each look alone, on the client.

Nothing is sent. A connection that is none will do for what does not ask how a transaction stands;
what does needs one that is open (`--database` of benchmarks/calling.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq

from processing.worker.guarded_cursor import GuardedCursor, check
from processing.worker.session import Session
from processing.worker.transaction_control import refuse_behind_the_end

KIND = "bench.insert"
STATEMENT = "INSERT INTO effects (id, amount) VALUES (%s, %s)"
NEW = "SELECT {number} FROM effects WHERE id = %s AND amount > 0"
"""Looked at for the first time each time, as text with its values in it is."""
CHECK, CHECK_NEW, BEHIND = (
    "a statement that was looked at before", "one for the first time",
    "whether the transaction is over, before a statement",
)  # fmt: skip
UNTOUCHED = "`untouched`, after a handler"
REUSED, MADE, PLAIN = "the type's cursor again", "a guarded cursor anew", "psycopg's cursor anew"

Look = Callable[[], object]


@contextmanager
def session_of(database: str | None) -> Iterator[Session]:
    """A session in a transaction, or one whose connection never came about (None)."""
    session = Session(
        database or "", lambda _backend: None, lock_timeout=1.0, statement_timeout=30.0,
        idle_timeout=60.0, prepare_threshold=5,
    )  # fmt: skip
    if database is None:
        nowhere = pq.PGconn.connect_start(b"host='' hostaddr='127.0.0.1' port=1")
        session._connection = psycopg.Connection(nowhere)  # noqa: SLF001 - it connects otherwise
    else:
        session.connect()
        session.begin()
    try:
        yield session
    finally:
        session.drop()


def looks_of(session: Session) -> dict[str, Look]:
    """Each look, by its name; `untouched` only where there is a transaction."""
    connection, failures = session.connection, session.failures
    numbers = iter(range(10**9))
    session.handler_cursor(KIND)
    looks: dict[str, Look] = {
        CHECK: lambda: check(STATEMENT, connection, failures),
        CHECK_NEW: lambda: check(NEW.format(number=next(numbers)), connection, failures),
        BEHIND: lambda: refuse_behind_the_end(connection),
        REUSED: lambda: session.handler_cursor(KIND),
        MADE: lambda: GuardedCursor(connection),
        PLAIN: lambda: psycopg.Cursor(connection),
    }
    if session.untouched:
        looks[UNTOUCHED] = lambda: session.untouched
    return looks
