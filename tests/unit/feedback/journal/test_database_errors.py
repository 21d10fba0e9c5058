from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from feedback.journal.database_errors import (
    Outage,
    Overtaken,
    is_lock_race,
    is_race,
    may_pass_within,
    outage_of,
)


@pytest.mark.parametrize(
    "error",
    [
        psycopg.DatabaseError("server closed the connection unexpectedly"),
        psycopg.OperationalError("not connected"),
        errors.AdminShutdown("terminating connection"),
        errors.IdleInTransactionSessionTimeout("too long"),
        OSError("socket"),
    ],
)
def test_a_lost_connection_is_unclear_only_with_a_commit(error: BaseException) -> None:
    assert outage_of(error, connected=False, committing=True) is Outage.UNCLEAR
    assert outage_of(error, connected=False) is Outage.RECONNECT


@pytest.mark.parametrize(
    "error",
    [
        errors.ReadOnlySqlTransaction,
        errors.DiskFull,
        errors.OutOfMemory,
        errors.TooManyConnections,
        errors.AdminShutdown,
        errors.CannotConnectNow,
        errors.ConnectionFailure,
    ],
)
def test_a_server_that_cannot_work_is_away(error: type[psycopg.Error]) -> None:
    for committing in (False, True):
        assert outage_of(error("no"), connected=True, committing=committing) is Outage.AWAY


@pytest.mark.parametrize(
    "error",
    [
        psycopg.DatabaseError("no SQLSTATE"),
        errors.UniqueViolation("taken"),
        errors.DeadlockDetected("deadlock"),
        errors.QueryCanceled("statement_timeout"),
        errors.InvalidTextRepresentation("22P02"),
        ValueError("53100"),
    ],
)
def test_what_is_about_one_statement_is_no_outage(error: BaseException) -> None:
    assert outage_of(error, connected=True, committing=True) is None


def test_races() -> None:
    for race in (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable):
        assert is_race(race("no"), "oncepool")
        assert is_lock_race(race("no"))
    assert is_race(Overtaken("r-1"), "oncepool")
    assert not is_lock_race(Overtaken("r-1"))
    # Without a place of its own it may be any table's key.
    assert not is_race(errors.UniqueViolation("taken"), "oncepool")
    assert not is_race(errors.ReadOnlySqlTransaction("no"), "oncepool")


def test_what_passes_while_its_transaction_stays_open() -> None:
    for passing in (errors.DeadlockDetected, errors.LockNotAvailable, errors.QueryCanceled,
                    errors.DiskFull):  # fmt: skip
        assert may_pass_within(passing("no"))
    for lasting in (errors.SerializationFailure, errors.ReadOnlySqlTransaction,
                    errors.InsufficientPrivilege, errors.UniqueViolation):  # fmt: skip
        assert not may_pass_within(lasting("no"))


@pytest.mark.parametrize(
    "error",
    [errors.InsufficientPrivilege, errors.UndefinedTable, errors.UndefinedColumn,
     errors.InvalidSchemaName],
)  # fmt: skip
def test_what_the_journal_lacks_is_no_fault_of_a_request(error: type[psycopg.Error]) -> None:
    """Nor is what a handler's own statement lacks an outage."""
    assert outage_of(error("no"), connected=True, journals=True) is Outage.AWAY
    assert outage_of(error("no"), connected=True) is None
