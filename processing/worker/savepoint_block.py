"""A `transaction()` block of a handler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

import psycopg

from processing.handlers.errors import OncepoolError


class SavepointBlock(AbstractContextManager[psycopg.Transaction]):
    """A savepoint that ends with the run at the latest.

    psycopg's own may end whenever it is collected: in what another request does, perhaps within the
    lock that it waits for then.
    """

    def __init__(
        self,
        block: AbstractContextManager[psycopg.Transaction],
        opened: list[SavepointBlock],
    ) -> None:
        """`opened`: those of the run, the innermost last."""
        self._block = block
        self._opened = opened

    def __enter__(self) -> psycopg.Transaction:
        entered = self._block.__enter__()
        self._opened.append(self)
        return entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool | None:
        if self not in self._opened:
            if kind is GeneratorExit:  # around it was a generator that is collected now
                return None
            raise OncepoolError("the transaction() block has ended with the run that it began in")
        self._opened.remove(self)
        return self._block.__exit__(kind, error, at)
