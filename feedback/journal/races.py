"""Errors that say: another transaction was in the way, do it again from the look-up. Pure."""

from __future__ import annotations

from typing import Final

from psycopg import errors

_LOCKS: Final = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
)
_KEYS: Final = frozenset({"requests_pkey", "requests_coalescing"})
"""Of an id that somebody else wrote since the look-up, and of a reference that is taken."""


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
