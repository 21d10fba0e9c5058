"""A proxy before a broker that tells clients of no brokers, as one does that has just started."""

from __future__ import annotations

import struct

from tests.support.kafka_frames import is_metadata
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.proxy import Link


class BrokerlessProxy(LoneBrokerProxy):
    """One that can take the brokers out of the metadata of topics.

    Until a controller has let a broker that starts take part, that broker knows topics and no
    brokers: its answers look so.
    """

    brokerless = 0
    """So many answers that come next name no brokers."""

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        if up and self.brokerless and is_metadata(unit):
            assert struct.unpack_from(">h", unit, 6)[0] >= 9, "another form of answer"
            link.asked.add(unit[8:12])
        elif not up and unit[4:8] in link.asked:
            link.asked.discard(unit[4:8])
            unit = self._without_brokers(unit)
        return super()._as_passed_on(link, unit, up=up)

    def _without_brokers(self, frame: bytes) -> bytes:
        with self._lock:  # of all connections together so many
            if not self.brokerless:
                return frame
            self.brokerless -= 1
        # After length and number: no tags, how long to be throttled, then brokers and one.
        at = brokers = 4 + 4 + 1 + 4
        at += 1
        for _ in range(frame[brokers] - 1):
            at += 4  # its number
            at += frame[at]  # its host: a compact string, with its length and one before it
            at += 4  # its port
            at += max(frame[at], 1)  # its rack, perhaps none
            at += 1  # no tags
        answer = frame[4:brokers] + b"\x01" + frame[at:]
        return struct.pack(">i", len(answer)) + answer
