"""Transactions of which something is told or counted once they have landed, and only then.

The answer to a COMMIT may be lost with its connection. Done again, such a transaction finds nothing
left to do, and what it did would be told to nobody; or it does it twice. So its id is kept, and the
server asked what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from psycopg import errors

from feedback.journal.connections import Connection

Fact = TypeVar("Fact")
_NUMBER: Final = "SELECT pg_current_xact_id_if_assigned()::text"
_STATUS: Final = "SELECT pg_xact_status(%s::text::xid8)"


class _Unclear(NamedTuple):
    """A transaction whose COMMIT got no answer, by its id."""

    number: str
    facts: list[object]


def _unheard(_: object) -> None:
    """Nobody wants to know."""


class Commits(Generic[Fact]):
    """Transactions of one thread, and what is to be told of each once its end is known."""

    def __init__(
        self,
        landed: Callable[[Sequence[Fact]], object] = _unheard,
        lost: Callable[[Sequence[Fact]], object] = _unheard,
    ) -> None:
        """`landed` hears once of the facts of each that was committed, `lost` of all others'."""
        self._landed: Callable[..., object] = landed
        self._lost: Callable[..., object] = lost
        self._unclear: list[_Unclear] = []

    @property
    def unclear(self) -> bool:
        """Whether there are some of which nobody knows whether they landed."""
        return bool(self._unclear)

    @contextmanager
    def transaction(
        self, connection: Connection, facts: Iterable[Fact] = ()
    ) -> Iterator[list[Fact]]:
        """A transaction, and no savepoint in another; what it does is put into the list.

        `facts` are in it from the start, and lost also where it does not begin. Raises
        psycopg.Error; what is then unclear `settle` finds out, on another connection.
        """
        facts = list(facts)
        number = None
        try:
            with connection.transaction():
                yield facts
                if facts:
                    number = _number_of(connection)
        except BaseException:
            if number is not None and connection.closed:
                self._unclear.append(_Unclear(number, list(facts)))
            elif facts:
                self._lost(facts)
            raise
        if facts:
            self._landed(facts)

    def settle(self, connection: Connection) -> None:
        """Finds out what became of those that are unclear. Raises psycopg.Error.

        One that still runs is left for the next time: its server has not noticed yet that its
        client is gone.
        """
        for one in self._unclear.copy():
            landed = has_landed(connection, one.number)
            if landed is not None:
                self._unclear.remove(one)
                (self._landed if landed else self._lost)(one.facts)


def has_landed(connection: Connection, number: str | int) -> bool | None:
    """Whether the transaction with this id was committed; None while it runs."""
    try:
        row = connection.execute(_STATUS, [number]).fetchone()
    except errors.InvalidParameterValue:
        # Ahead of all that this server knows: it took over, and never heard of it.
        return False
    status = None if row is None else row[0]
    return None if status == "in progress" else bool(status == "committed")


def _number_of(connection: Connection) -> str | None:
    """The id of the open transaction; None where it has written nothing."""
    row = connection.execute(_NUMBER).fetchone()
    return None if row is None else row[0]
