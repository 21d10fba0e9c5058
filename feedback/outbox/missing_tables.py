"""What a driver says where the outbox's tables are not there, or too old, and what to do then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from feedback.errors import OutboxMissing

_MISSING: Final = frozenset({"3F000", "42P01", "42703", "42883", "42P10"})
"""No such schema, table, column, function or unique index."""


@contextmanager
def missing_named(schema: str) -> Iterator[None]:
    """Raises OutboxMissing in place of what a driver says of tables that are not there."""
    try:
        yield
    except Exception as error:
        cause: Any = error
        while cause is not None:
            code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
            if code in _MISSING:
                said = str(cause).strip().splitlines()[0]
                raise OutboxMissing(schema, said) from error
            cause = getattr(cause, "orig", None) or cause.__cause__
        raise
