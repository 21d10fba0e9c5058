"""Statements that the server keeps, and the types that it has found for their parameters.

Those of texts and of None it finds when it is to keep the statement, and stays with them when a
column has got another type since: what the column takes now is refused as what it took then. To ask
for them costs three round trips, so it is done where such a statement has failed.
"""

from __future__ import annotations

from typing import Final

from psycopg import pq

from processing.worker.failures import Failures

_OF_VALUES_OR_TYPES: Final = ("22", "42")
"""Classes of the SQLSTATEs that a value of another type, or an operator for it, can lead to."""
_UNKNOWN: Final = b"26000"
_BACK: Final = b"ROLLBACK TO SAVEPOINT oncepool"


def has_outgrown(failures: Failures) -> bool:
    """Whether the last statement that failed would get other types for its parameters now.

    What was done since the savepoint may be undone for that, or the transaction be broken.
    """
    error, kept = failures.last, failures.kept
    if error is None or kept is None or kept.connection.closed:
        return False
    if not (error.sqlstate or "").startswith(_OF_VALUES_OR_TYPES):
        return False
    pgconn = kept.connection.pgconn
    if pgconn.transaction_status == pq.TransactionStatus.INERROR:
        pgconn.exec_(_BACK)
    if _failed(pgconn.prepare(b"", kept.query, kept.types)):
        return False  # it fits nothing, kept or not
    now = pgconn.describe_prepared(b"")
    then = pgconn.describe_prepared(kept.name)
    if _failed(then):
        return then.error_field(pq.DiagnosticField.SQLSTATE) != _UNKNOWN
    return _types(then) != _types(now)


def _failed(result: pq.abc.PGresult) -> bool:
    return result.status != pq.ExecStatus.COMMAND_OK


def _types(described: pq.abc.PGresult) -> list[int]:
    return [described.param_type(n) for n in range(described.nparams)]
