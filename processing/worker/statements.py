"""What a worker sends around handlers and rows: its transaction and its savepoints."""

from __future__ import annotations

MARK = b"oncepool worker, in a transaction"
"""The connection's name while a transaction of ours is open. The server reports every change of it,
so that its end is seen without asking, though another one may have begun since."""
BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL application_name = '%b'" % MARK
BOUNDS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
SAVEPOINT = b"SAVEPOINT oncepool"
RELEASE = (
    b"SAVEPOINT oncepool_check",
    b"SET CONSTRAINTS ALL IMMEDIATE",
    b"ROLLBACK TO SAVEPOINT oncepool_check",
    b"RELEASE SAVEPOINT oncepool",
)
"""Deferred constraints are tried and put back as they were: with what their triggers did, they come
again at COMMIT, and which of them are deferred stays as the schema, or the handler, says."""
BACK = b"ROLLBACK TO SAVEPOINT oncepool; RELEASE SAVEPOINT oncepool"
TRY_FOR_GOOD = (
    b"SET LOCAL statement_timeout = %d; SET CONSTRAINTS ALL IMMEDIATE;"
    b" SET LOCAL statement_timeout = %d"
)
"""In milliseconds; nothing is deferred any more, and what comes then has the usual time."""
