"""How large a message our producers let through: what consumers take, and what is sent with it."""

from __future__ import annotations

from typing import Final

LARGEST_PAYLOAD: Final = 1024 * 1024
"""Bytes; what consumers take unless they are told otherwise (`max_payload`)."""
BATCH: Final = 1_000_000
"""Bytes; librdkafka's batch.size. What is larger goes to the brokers by itself."""
TOPIC_TAKES: Final = 1_048_588
"""Bytes; a topic's max.message.bytes where nobody has set it."""
_ROOM: Final = 64 * 1024
"""Bytes of key, headers and what a message has besides, beyond its payload."""
LARGEST_MESSAGE: Final = 1_000_000_000
"""Bytes; the most of librdkafka's message.max.bytes. Topics may take more."""
LARGEST_ROW: Final = 400_000_000
"""Bytes; the largest message that relays read from an outbox. PostgreSQL answers with 1 GiB a row
at most: that is payload and key in hex, twice as long, beside 256 MiB of jsonb headers."""


def message_bytes(max_payload: int = LARGEST_PAYLOAD) -> int:
    """Of a producer's message.max.bytes and a topic's max.message.bytes, for such payloads."""
    return min(max(TOPIC_TAKES, max_payload + _ROOM), LARGEST_MESSAGE)
