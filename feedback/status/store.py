"""Where statuses are kept for producers to read. What may replace what there says `replacement`.

Two stores fulfil it: `redis_store.RedisStatusStore` and, for tests without services,
`memory_store.MemoryStatusStore`. `opening.open_store` makes the one that a URL means.
A status is a hint with a time to live; the journal is the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from feedback.status.status import Status, StatusWrite


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

    def drop(self, ids: Sequence[str], before: datetime) -> None:
        """Deletes the statuses of these ids whose `at` is before (aware), but for `accepted`.

        That one is of who uses the id anew, and whose message is not read yet.

        Raises StoreUnavailable when some may stand still.
        """

    def subscribe(self, channel: str) -> Hints:
        """Subscribed when it returns, so that no hint sent after that is missed."""

    def close(self) -> None:
        """Gives up the connections."""


def decode_or_none(value: bytes | None) -> Status | None:
    """The status; None where there is none, or a value not written by us (which is replaced).

    A large result is parsed when it is first read.
    """
    if value is None:
        return None
    try:
        return Status.decode(value, whole=False)
    except ValueError:
        return None
