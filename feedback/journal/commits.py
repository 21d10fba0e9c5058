"""Transactions of which something is told or counted once they have landed, and only then.

The answer to a COMMIT may be lost with its connection. Done again, such a transaction finds nothing
left to do, and what it did would be told to nobody; or it does it twice. So its id is kept, and the
server asked what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from psycopg import errors

from feedback.journal.connections import Connection

Fact = TypeVar("Fact")
LIFE: Final = """concat(extract(epoch FROM pg_postmaster_start_time()), '/',
    extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))"""
"""SQL: which life of the server this is. Another one after each start, and after each crash that
its postmaster outlives, since then it begins its statistics anew. What it had not flushed when it
crashed it has forgotten, ids of transactions among it, and it gives the same ids out again."""
_NUMBER: Final = f"SELECT pg_current_xact_id_if_assigned()::text, {LIFE}"
_STATUS: Final = f"SELECT pg_xact_status(%s::text::xid8), {LIFE}"


class Fate(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    UNDONE = "undone"
    RUNS = "runs"
    UNKNOWN = "unknown"
    """Its server has crashed: it was committed before, or another one that has its id was since."""

    @property
    def landed(self) -> bool | None:
        """Whether it was committed; None where nobody can say."""
        return {Fate.COMMITTED: True, Fate.UNDONE: False}.get(self)


class _Unclear(NamedTuple):
    """A transaction whose COMMIT got no answer, by its id and the life of the server."""

    number: str
    life: str
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
        number, life = None, ""
        try:
            with connection.transaction():
                yield facts
                if facts:
                    number, life = number_of(connection)
        except BaseException:
            if number is not None and connection.closed:
                self._unclear.append(_Unclear(number, life, list(facts)))
            elif facts:
                self._lost(facts)
            raise
        if facts:
            self._landed(facts)

    def settle(self, connection: Connection) -> None:
        """Finds out what became of those that are unclear. Raises psycopg.Error.

        One that still runs is left for the next time: its server has not noticed yet that its
        client is gone. What nobody can know counts as lost: rows tell it to whoever asks.
        """
        for one in self._unclear.copy():
            fate = fate_of(connection, one.number, one.life)
            if fate is not Fate.RUNS:
                self._unclear.remove(one)
                (self._landed if fate is Fate.COMMITTED else self._lost)(one.facts)


def fate_of(connection: Connection, number: str | int, life: str | None = None) -> Fate:
    """What became of the transaction that had this id in this life of the server.

    Without a `life`, of whichever has the id by now, for those who look for what it did anyway.
    """
    try:
        row = connection.execute(_STATUS, [number]).fetchone()
    except errors.InvalidParameterValue:
        # Ahead of all that this server knows: it took over, or crashed, and never heard of it.
        return Fate.UNDONE
    status, now = row or (None, None)
    same = life is None or life == now
    if status == "committed":
        return Fate.COMMITTED if same else Fate.UNKNOWN
    # No transaction outlives a crash: what runs with its id after one is another.
    return Fate.RUNS if status == "in progress" and same else Fate.UNDONE


def number_of(connection: Connection) -> tuple[str | None, str]:
    """The id of the open transaction, None where it has written nothing; the server's life."""
    row = connection.execute(_NUMBER).fetchone()
    return (None, "") if row is None else (row[0], row[1])
