"""What a driver says where the outbox's tables are not there, or too old, and what to do then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
            code, said = _told(cause)
            if code in _MISSING:
                raise OutboxMissing(schema, said.strip().splitlines()[0]) from error
            cause = getattr(cause, "orig", None) or cause.__cause__
        raise


def _told(error: Any) -> tuple[str | None, str]:
    """The server's code and words, as the driver has them: pg8000 in what it was made of."""
    fields = error.args[0] if error.args else None
    if isinstance(fields, Mapping):
        return fields.get("C"), str(fields.get("M"))
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None), str(error)
