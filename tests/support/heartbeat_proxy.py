"""A proxy before a broker that makes a member's heartbeat such that no broker takes it."""

from __future__ import annotations

import struct

from tests.support.kafka_frames import key
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.proxy import Link

CONSUMER_GROUP_HEARTBEAT = 68
"""The key of the heartbeat of KIP-848."""


class HeartbeatProxy(LoneBrokerProxy):
    """One that can make a member's next heartbeat such that no broker takes it."""

    spoil = 0
    """So many heartbeats that come next say epoch 0, as who joins does, and not the rest of it."""

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        if up and self.spoil and key(unit) == CONSUMER_GROUP_HEARTBEAT:
            unit = self._spoiled(unit)
        return super()._as_passed_on(link, unit, up=up)

    def _spoiled(self, frame: bytes) -> bytes:
        epoch = _epoch_at(frame)
        if epoch_of(frame) <= 0:
            return frame
        with self._lock:  # of all connections together so many
            if not self.spoil:
                return frame
            self.spoil -= 1
        return frame[:epoch] + struct.pack(">i", 0) + frame[epoch + 4 :]


def epoch_of(frame: bytes) -> int:
    """What a heartbeat says of its member: 0 where it joins, below that where it leaves."""
    epoch: int = struct.unpack_from(">i", frame, _epoch_at(frame))[0]
    return epoch


def _epoch_at(frame: bytes) -> int:
    """Where a heartbeat has its member's epoch: after the header, the group and the member."""
    client: int = struct.unpack_from(">h", frame, 12)[0]
    at = 14 + max(client, 0) + 1  # no tagged fields
    for _ in ("group", "member"):
        at += frame[at]  # a compact string: first its length and one, below 128 here
    return at
