"""What an error of a statement says: the database is away, or another transaction was in the way.

The one place that tells them apart. Pure. That the database is away is decided by the state of the
connection and by the error's SQLSTATE, never by its class: a COMMIT whose answer was cut is a plain
DatabaseError without SQLSTATE, a full disk an OperationalError, a read-only server an
InternalError. What is neither an outage nor a race is about the statement alone.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

import psycopg
from psycopg import errors

READ_ONLY: Final = "25006"
_CLASSES: Final = (
    "08",  # connection exception
    "53",  # insufficient resources: disk full, out of memory, too many connections
    "57P",  # shut down, crashed, cannot connect now, idle session ended
)
_UNFIT: Final = (
    "42",  # access rule violation, undefined table or column
    "3F",  # no such schema
)
"""Of a statement of the journal's own: nothing in a request makes one of these of it."""
_GONE: Final = frozenset({"42P01", "42703", "3F000"})
_LOCKS: Final = (
    errors.DeadlockDetected,  # 40P01
    errors.SerializationFailure,  # 40001
    errors.LockNotAvailable,  # 55P03
)
_REPLAN: Final = "RevalidateCachedQuery"
"""The server's function that finds a kept statement to give other columns than it was kept with."""
_KEPT_BY_DRIVER: Final = re.compile(r"\b_pg3_\d+\b")
"""What psycopg names a statement that it has the server keep; in errors of all languages."""
_TYPE_GONE: Final = "cache lookup failed for type"
"""Of a parameter, which was dropped since; servers of all languages say so in English."""
_KEYS: Final = frozenset({"requests_pkey", "requests_coalescing"})
"""Of an id that somebody else wrote since the look-up, and of a reference that is taken."""


class Outage(Enum):
    """What to do about a statement that failed for no fault of its own."""

    RECONNECT = auto()
    """The connection is gone, and with it a transaction that nobody had asked to commit: connect
    and do it all again. Where that fails the database is away."""
    UNCLEAR = auto()
    """The connection is gone, and with it the answer to a statement that commits: whether it
    landed only the journal knows. Nothing may be said, or run again, before a look-up."""
    AWAY = auto()
    """The connection is there, and the server says that it cannot do its work: that is so for
    everybody, but only where the probe (`probe.refused_work`) finds the same. Otherwise
    it was this statement alone, as one that needs more memory than it may use: of a handler, that
    is. What only the journal is written with waits for the database all the same."""


def outage_of(
    error: BaseException, *, connected: bool, committing: bool = False, journals: bool = False
) -> Outage | None:
    """What `error` says of the database; None where it is about the statement alone.

    `connected` is whether the connection still stands after the error, `committing` whether what
    failed would have committed: COMMIT, or a statement that writes in autocommit mode. `journals`:
    it is the journal's own statement, and no handler's.
    """
    if not connected:
        return Outage.UNCLEAR if committing else Outage.RECONNECT
    if journals and is_unfit(error):
        return Outage.AWAY
    read_only = isinstance(error, psycopg.Error) and error.sqlstate == READ_ONLY
    return Outage.AWAY if read_only or is_away(error) else None


def is_away(error: BaseException) -> bool:
    """Whether the server says that it cannot work for anybody, writes or not."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and state.startswith(_CLASSES)


def is_unfit(error: BaseException) -> bool:
    """Whether a journal's own statement that failed so says that the journal is of no use.

    A right that the user lacks, a table or column that is gone: as bad for every request.
    """
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and state.startswith(_UNFIT)


def is_gone(error: BaseException) -> bool:
    """Whether it says that a table, a column or the schema of a statement is not there."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _GONE


def is_cut(error: BaseException) -> bool:
    """Whether no answer came: what a lost connection raises says nothing else."""
    if not isinstance(error, psycopg.Error) or error.sqlstate is not None:
        return False
    return isinstance(error, psycopg.OperationalError) or type(error) is psycopg.DatabaseError


def is_turned_away(error: BaseException) -> bool:
    """Whether a server is there that lets nobody new in, which says nothing of sessions that stand.

    libpq gives no SQLSTATE for that: it can't be told where the server has another word for it.
    """
    return is_cut(error) and "FATAL:" in str(error)


class Outgrown(psycopg.OperationalError):
    """A statement failed that the server keeps with other parameter types than it has by now."""


class Overtaken(Exception):
    """A guarded UPDATE missed its row: another copy of the request moved it meanwhile."""


def is_race(error: BaseException, schema: str) -> bool:
    """Whether it is nobody's fault and may go well the next time. `schema` is the journal's."""
    if isinstance(error, errors.UniqueViolation):
        diag = error.diag
        mine = (diag.schema_name, diag.table_name) == (schema, "requests")
        return mine and diag.constraint_name in _KEYS
    return isinstance(error, (Overtaken, *_LOCKS))


def is_lock_race(error: BaseException) -> bool:
    """Whether it is a race for locks, which any statement may lose, a handler's too."""
    return isinstance(error, _LOCKS)


def may_pass_within(error: BaseException) -> bool:
    """Whether the statement may go well the next time in the same transaction.

    A snapshot that is too old, or that it takes no writes, stays so to its end.
    """
    if isinstance(error, errors.SerializationFailure):
        return False
    return is_lock_race(error) or is_away(error) or isinstance(error, errors.QueryCanceled)


def is_stale_plan(error: BaseException) -> bool:
    """Whether it is about a statement that the server keeps for this connection, or no longer does.

    A table was altered under it, or a handler had the server forget it where the driver did not see
    that (`DEALLOCATE ALL` in a DO block). It fails there from now on, and nowhere else.
    """
    if isinstance(error, errors.InternalError_):
        return (error.diag.message_primary or "").startswith(_TYPE_GONE)
    if isinstance(error, errors.InvalidSqlStatementName):
        return _KEPT_BY_DRIVER.search(error.diag.message_primary or "") is not None
    if isinstance(error, errors.FeatureNotSupported):
        return error.diag.source_function == _REPLAN
    return isinstance(error, Outgrown)
