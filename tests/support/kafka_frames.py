"""Kafka's frames: requests and answers, each with its length before it. Pure."""

from __future__ import annotations

import struct

PRODUCE = 0
"""The key of Kafka's Produce."""
METADATA = 3
"""The key of Metadata."""
OFFSET_COMMIT = 8
"""The key of Kafka's OffsetCommit."""


class KafkaFrames:
    """Cuts one direction of a Kafka connection into frames, from its beginning on."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """What has come of a frame that is not whole: bytes would be copied at each piece."""

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, each with its length before it.

        Raises ValueError where a length is negative: then these are no frames.
        """
        self._rest += data
        found, at = [], 0
        while len(self._rest) >= at + 4:
            (length,) = struct.unpack_from(">i", self._rest, at)
            if length < 0:
                raise ValueError(f"not a frame of Kafka's: its length is {length}")
            end = at + 4 + length
            if len(self._rest) < end:
                break
            with memoryview(self._rest) as rest:
                found.append(bytes(rest[at:end]))
            at = end
        del self._rest[:at]
        return found


def is_offset_commit(frame: bytes) -> bool:
    """Whether a request's frame commits offsets."""
    return key(frame) == OFFSET_COMMIT


def is_produce(frame: bytes) -> bool:
    """Whether a request's frame brings messages."""
    return key(frame) == PRODUCE


def is_metadata(frame: bytes) -> bool:
    """Whether a request's frame asks for brokers and topics."""
    return key(frame) == METADATA


def key(frame: bytes) -> int | None:
    """Which kind of request a frame is, or None: it is none."""
    return struct.unpack_from(">h", frame, 4)[0] if len(frame) > 12 else None
