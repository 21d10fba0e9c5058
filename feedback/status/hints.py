"""Hints: what is published when statuses are written, so that who waits need not look."""

from __future__ import annotations

from collections.abc import Sequence

from feedback.status.status import StatusWrite


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
