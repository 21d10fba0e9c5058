"""Why a message is not taken, as brokers say it, or librdkafka for them: one table for all senders.

What is not in it says nothing about a message: brokers are away, or busy, or shut this client out.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import KafkaError

TOPIC_MISSING: Final = "topic_missing"
TOO_LARGE: Final = "too_large"
CLOCK_AHEAD: Final = "clock_ahead"
TOO_OLD: Final = "too_old"

_OF_TOPICS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: TOPIC_MISSING,
    KafkaError._UNKNOWN_TOPIC: TOPIC_MISSING,  # noqa: SLF001 - its public name
    KafkaError.TOPIC_EXCEPTION: "topic_invalid",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not_authorised",
}
_OF_MESSAGES: Final = {
    # For this client or the topic's max.message.bytes, and for its segment.bytes.
    KafkaError.MSG_SIZE_TOO_LARGE: TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP: CLOCK_AHEAD,
    KafkaError.INVALID_RECORD: "refused",
    KafkaError.POLICY_VIOLATION: "refused",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "refused",
}
_OLD: Final = 600.0
"""Seconds. By a clock that is ahead, too, what it has stamped is younger as long as it is tried."""
_ANOTHER: Final = KafkaError._INVALID_DIFFERENT_RECORD  # noqa: SLF001 - its public name
"""Another message of its set was refused, which newer brokers name."""


def topic_refusal(error: KafkaError) -> str | None:
    """What is wrong with the topic: whichever message it is said of, it is true of all."""
    return _OF_TOPICS.get(error.code())


def message_refusal(error: KafkaError, made: float | None = None) -> str | None:
    """What is wrong with a message. Brokers say it of all that they get in one set.

    So it is true of one that was sent alone. `made`: its time, in seconds since the epoch. Brokers
    refuse it for a time ahead of theirs, and where a topic is told to for one that is long ago.
    """
    wrong = _OF_MESSAGES.get(error.code())
    if wrong == CLOCK_AHEAD and made is not None and made < time.time() - _OLD:
        return TOO_OLD
    return wrong


def in_doubt(error: KafkaError) -> bool:
    """Whether its set was not taken for a message in it: this one, or another."""
    return error.code() in _OF_MESSAGES or error.code() == _ANOTHER


def is_refusal(error: KafkaError) -> bool:
    """Whether it is certain that its message was not written; else that may have been so."""
    return error.code() in _OF_TOPICS or in_doubt(error)
