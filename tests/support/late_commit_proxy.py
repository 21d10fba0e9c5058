"""A proxy before a broker that keeps a commit back, to be brought when its sender has gone on."""

from __future__ import annotations

import socket
import struct

from tests.support.heartbeat_proxy import CONSUMER_GROUP_HEARTBEAT, epoch_of
from tests.support.kafka_frames import is_offset_commit, key
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.proxy import Link


class LateCommitProxy(LoneBrokerProxy):
    """One that can keep the next commit back, and lose the next word that a member leaves."""

    keep = False
    """The next commit is kept, and does not pass."""
    kept = b""
    lose_leave = False
    """The next heartbeat that says that its member leaves breaks its connection, and is lost."""
    leaves_lost = 0

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        if up and self.keep and is_offset_commit(unit):
            self.keep, self.kept = False, unit
            return b""
        if up and self.lose_leave and key(unit) == CONSUMER_GROUP_HEARTBEAT and epoch_of(unit) < 0:
            self.lose_leave = False
            self.leaves_lost += 1
            link.cut()
            return b""
        return super()._as_passed_on(link, unit, up=up)

    def bring(self) -> bytes:
        """Brings what was kept to the broker; its answer."""
        with socket.create_connection(self._target, 10) as late:
            late.sendall(self.kept)
            with late.makefile("rb") as answer:
                return answer.read(struct.unpack(">i", answer.read(4))[0])
