"""Whether what cannot be committed together fails for something that is common to it. Pure.

As where a trigger of the journal's refuses every row: then halving finds nobody at fault, and each
request is run once more for each half that it was in.
"""

from __future__ import annotations

import psycopg


class CommonFailure:
    """What the latest requests that were tried alone have failed with, one after the other.

    Nothing but whether the next ones are tried in halves or alone is decided by it.
    """

    def __init__(self) -> None:
        self._error: tuple[type[BaseException], str | None] | None = None
        self._times = 0

    def failed_alone(self, error: BaseException) -> None:
        """A request did, with `error`."""
        kind = _kind(error)
        self._times = self._times + 1 if kind == self._error else 1
        self._error = kind

    def went_well(self) -> None:
        """Requests were run and committed."""
        self._times = 0

    def explains(self, error: BaseException) -> bool:
        """Whether two halves have failed as well, down to one request each, with such an error."""
        return self._times > 1 and _kind(error) == self._error


def _kind(error: BaseException) -> tuple[type[BaseException], str | None]:
    return type(error), error.sqlstate if isinstance(error, psycopg.Error) else None
