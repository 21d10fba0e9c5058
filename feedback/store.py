"""Where statuses are kept for producers to read: the shape of it, and of one write.

Two stores fulfil it: `RedisStatusStore` and, for tests without services, `MemoryStatusStore`.
A status is a hint with a time to live; the journal is the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

__all__ = [
    "Hints",
    "MemoryStatusStore",
    "RedisStatusStore",
    "StatusStore",
    "StatusWrite",
    "hint_messages",
    "hinted_ids",
]

if TYPE_CHECKING:
    from feedback.memory_store import MemoryStatusStore
    from feedback.redis_store import RedisStatusStore
    from feedback.status import Status


class StatusWrite(NamedTuple):
    """One status on its way to the store."""

    id: str
    value: bytes  # what encode_status made
    ttl: int  # seconds, at least 1
    # The writer does not know the run number (database away, shutdown): the store takes the
    # standing status's plus one. Where a final status stands, nothing is written.
    bump: bool = False
    reply_to: str | None = None  # channel of the producer that wants a hint


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

    def subscribe(self, channel: str) -> Hints:
        """Subscribed when it returns, so that no hint sent after that is missed."""

    def close(self) -> None:
        """Gives up the connections."""


def hint_messages(writes: Sequence[StatusWrite]) -> dict[str, bytes]:
    """One message per channel: a line `id SP value` for each status that its producer wants."""
    lines: dict[str, list[bytes]] = {}
    for write in writes:
        if write.reply_to is not None:
            line = write.id.encode() + b" " + write.value
            lines.setdefault(write.reply_to, []).append(line)
    return {channel: b"\n".join(content) for channel, content in lines.items()}


def hinted_ids(message: bytes) -> list[str]:
    """The ids that a hint names. What cannot be read is left out: a hint is only a hint."""
    ids = []
    for line in message.split(b"\n"):
        # An id may hold spaces, so the start of the value marks its end.
        end = line.rfind(b' {"v":"')
        if end > 0:
            ids.append(line[:end].decode(errors="replace"))
    return ids


def __getattr__(name: str) -> Any:
    # Importing this module must stay light: redis is loaded where a store is used.
    if name == "RedisStatusStore":
        from feedback.redis_store import RedisStatusStore

        return RedisStatusStore
    if name == "MemoryStatusStore":
        from feedback.memory_store import MemoryStatusStore

        return MemoryStatusStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
