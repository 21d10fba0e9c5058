"""What the client says of its place in the group, and when a lost one is joined anew."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from feedback.backoff import Backoff

_NO_CONSUMER_PROTOCOL: Final = (
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - librdkafka's own errors are named so
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.GROUP_ID_NOT_FOUND,
)
"""What a broker that can't serve group.protocol=consumer answers to a member's first heartbeat: it
does not know it, has it turned off, or may not convert the group of members that use the other."""
_HEARTBEAT: Final = "ConsumerGroupHeartbeat"
"""What is in the fatal error of a member's heartbeat; its cause, too, is there in words only."""
_JOIN_ANEW: Final = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_REQUEST)
"""Such causes that a member who joins anew is rid of: a broker that crashed has lost the group, or
the client told half of what a join takes, as it does in a race (librdkafka issue 5541)."""
_HELD: Final = (KafkaError.UNRELEASED_INSTANCE_ID,)
"""The cause where the member that is replaced did not say that it leaves, or was not heard: it has
its `group.instance.id` until its session ends."""
LONGEST_SESSION: Final = 120.0
"""Seconds after which another process has it. A broker has sessions of a minute at most, unless it
is configured otherwise, and the pauses between two tries come on top."""
_MEMBERSHIP: Final = struct.Struct("=7si")
"""How the client describes its membership: magic and generation; then group and member id follow,
each with a zero byte."""
CALM: Final = 60.0
"""Seconds after which a membership that is lost is the first one again."""


class JoinPause:
    """Before each new membership: the cause may stay, and each costs the group a rebalance."""

    def __init__(
        self, clock: Callable[[], float], jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._pauses = Backoff(1.0, 30.0, jitter)
        self._due = 0.0
        self._since = 0.0
        """When the first membership of a row was lost."""

    @property
    def over(self) -> bool:
        """The group may be joined."""
        return self._clock() >= self._due

    def begin(self) -> float:
        """The membership is lost; seconds until the group may be joined."""
        now = self._clock()
        if self._calm(now):
            self._pauses.reset()
            self._since = now
        pause = self._pauses.next()
        self._due = now + pause
        return pause

    def mends(self, error: KafkaError) -> bool:
        """Whether a fatal error is over for a client that joins anew, once it has been a member."""
        if _HEARTBEAT not in error.str():
            return False
        now = self._clock()
        recent = self._calm(now) or now - self._since < LONGEST_SESSION
        return _names(error, _JOIN_ANEW) or (recent and _names(error, _HELD))

    def _calm(self, now: float) -> bool:
        return now - self._due > CALM


def is_member(membership: bytes) -> bool:
    """Whether the group counts a client that describes its membership so."""
    _, generation = _MEMBERSHIP.unpack_from(membership)
    member_id = membership[_MEMBERSHIP.size :].split(b"\0")[1]
    return generation > 0 and bool(member_id)


def no_consumer_protocol(error: KafkaError) -> bool:
    """Whether a fatal error says that the broker does not serve group.protocol=consumer."""
    return _names(error, _NO_CONSUMER_PROTOCOL)


@contextmanager
def failure_is_polled() -> Iterator[None]:
    """A client that has failed for good refuses what is asked in here: the next poll says why."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() != KafkaError._FATAL:  # noqa: SLF001 - as above
            raise


def _names(error: KafkaError, causes: Iterable[int]) -> bool:
    # The fatal error that comes with a message names its cause in words only.
    return any(KafkaError(code).str() in error.str() for code in causes)
