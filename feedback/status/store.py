"""Where statuses are kept for producers to read, and what may replace what there.

Two stores fulfil it: `redis_store.RedisStatusStore` and, for tests without services,
`memory_store.MemoryStatusStore`. `opening.open_store` makes the one that a URL means.
A status is a hint with a time to live; the journal is the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from feedback.contract.states import MAX_RUN, WITHOUT_ROW
from feedback.status.status import Status, StatusWrite

# How a `failed` that no journal row stands behind looks in a status.
_WITHOUT_ROW: Final = tuple(f'"code":"{code}"'.encode() for code in sorted(WITHOUT_ROW))
# Ranks that a bump replaces: accepted, running, failed.
_BUMPED: Final = frozenset({b"1", b"2", b"4"})

_IN_DOUBT: Final = b"5"


class Hints(Protocol):
    """An open subscription to one hint channel."""

    def receive(self, timeout: float) -> bytes | None:
        """The next hint: lines `id SP value`. None when none came within `timeout` seconds.

        Raises StoreUnavailable when the connection is gone: close it and subscribe again.
        """

    def close(self) -> None:
        """Ends the subscription; receive() must not be called after it."""


class StatusStore(Protocol):
    """Takes and gives statuses. Safe to call from several threads."""

    def write(self, writes: Sequence[StatusWrite]) -> None:
        """Writes each status unless one stands that it must not replace, then sends the hints.

        Raises StoreUnavailable when some were not written; all of them may be written again.
        """

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        """One answer an id, in their order; None where no status stands."""

    def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
        """As read(), but the values as they stand: who reads them often parses only changes."""

    def subscribe(self, channel: str) -> Hints:
        """Subscribed when it returns, so that no hint sent after that is missed."""

    def close(self) -> None:
        """Gives up the connections."""


def replacement(standing: bytes | None, write: StatusWrite) -> bytes | None:
    """The value to keep, or None where the standing one stays. The Redis script does the same.

    0. What the journal says for good is set whatever stands.
    1. A final status (rank 9) stays, and replaces any other.
    2. Rank 8 replaces a lower run number, and is replaced by a higher one only.
    3. Else the higher `v` stands; of equal ones the first, but an `in_doubt` is renewed: its `at`
       says when the journal, or the check of its handler, was asked last.
    4. A bump replaces only what is accepted, running or failed: what waits, is in doubt or dead
       in the journal is still that, whatever happened to a copy of the request.
    5. `failed` without a journal row counts runs that the journal never saw, so whatever the
       journal says (rank 3 and up) replaces it even with a lower `v`.
    """
    value = write.value
    if write.final:
        return value
    old, new = (standing or b"")[6:12], value[6:12]
    if len(old) < 6 or not old.isdigit():  # none, or not written by us
        return value
    rank, new_rank = old[5:], new[5:]
    if write.bump:
        if rank not in _BUMPED:
            return None
        run = min(int(old[:5]) + 1, MAX_RUN)
        return b"%b%05d%b" % (value[:6], run, value[11:])
    if rank == b"9":
        return None
    later = new > old and not (rank == b"8" and new[:5] == old[:5])
    renewed = new == old and rank == _IN_DOUBT
    unseen = (
        rank == b"4"
        and new_rank >= b"3"
        and any(code in (standing or b"") for code in _WITHOUT_ROW)
    )
    return value if later or renewed or new_rank == b"9" or unseen else None


def decode_or_none(value: bytes | None) -> Status | None:
    """The status; None where there is none, or a value not written by us (which is replaced)."""
    if value is None:
        return None
    try:
        return Status.decode(value)
    except ValueError:
        return None
