"""Messages that the broker has confirmed without saying where they lie.

It has taken them before, and its answer was lost: to the repetition it says only that it knows the
sequence number, and librdkafka reports that as delivered, without an offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from confluent_kafka import Message

from tests.chaos.real.producer import SendLedger

Sent = tuple[int | None, int, bytes | None, bytes | None]
"""Partition, timestamp (ms), key and value: the same of two messages that are the same."""


def sent(message: Message) -> Sent:
    """Of a message that was read, or whose delivery was reported."""
    return message.partition(), message.timestamp()[1], message.key(), message.value()


def find_places(ledger: SendLedger, messages: Iterable[Message]) -> None:
    """Enters the copies whose place was not told at free places of messages that are the same."""
    taken = {(copy.partition, copy.offset) for copy in ledger.copies}
    free: dict[Sent, list[int]] = defaultdict(list)
    for message in messages:
        if (message.partition(), message.offset()) not in taken:
            free[sent(message)].append(message.offset() or 0)
    for copy, message in ledger.unplaced:
        copy.offset = free[sent(message)].pop(0)
        ledger.copies.append(copy)
    ledger.unplaced.clear()
