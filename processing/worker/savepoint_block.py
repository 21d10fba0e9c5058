"""A `transaction()` block of a handler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, cast

import psycopg

from processing.handlers.errors import OncepoolError


class GuardedTransaction(psycopg.Transaction):
    """What psycopg gives in such a block."""

    _guarded: Any

    @classmethod
    def entered(cls, block: psycopg.Transaction, connection: Any) -> GuardedTransaction:
        """A block that has begun, made one of these."""
        block.__class__ = cls
        made = cast("GuardedTransaction", block)
        made._guarded = connection  # noqa: SLF001 - it is one of these
        return made

    @property
    def connection(self) -> Any:
        """The connection as its handler may see it."""
        return self._guarded


class SavepointBlock(AbstractContextManager[psycopg.Transaction]):
    """A savepoint that ends with the run at the latest.

    psycopg's own may end whenever it is collected: in what another request does, perhaps within the
    lock that it waits for then.
    """

    def __init__(
        self,
        block: AbstractContextManager[psycopg.Transaction],
        opened: list[SavepointBlock],
        connection: Any,
    ) -> None:
        """`opened`: those of the run, the innermost last. `connection`: the guarded one."""
        self._block = block
        self._opened = opened
        self._connection = connection

    def __enter__(self) -> psycopg.Transaction:
        entered = self._block.__enter__()
        self._opened.append(self)
        return GuardedTransaction.entered(entered, self._connection)

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
