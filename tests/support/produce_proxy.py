"""A proxy before a broker that answers producers with an error of the test's choice."""

from __future__ import annotations

import struct

from tests.support.kafka_frames import is_produce
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.proxy import Link

OUT_OF_ORDER = 45
"""To the oldest request on its way: librdkafka gives its producer up."""


class ProduceProxy(LoneBrokerProxy):
    """One that can have a producer believe that the broker has refused what it took."""

    spoil = 0
    """So many answers that come next say OUT_OF_ORDER, of topics with one partition."""

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        if up and self.spoil and is_produce(unit):
            assert struct.unpack_from(">h", unit, 6)[0] >= 9, "another form of answer"
            link.asked.add(unit[8:12])
        elif not up and unit[4:8] in link.asked:
            link.asked.discard(unit[4:8])
            unit = self._spoiled(unit)
        return super()._as_passed_on(link, unit, up=up)

    def _spoiled(self, frame: bytes) -> bytes:
        # After length and number: no tags, one topic (compact: one more), as Produce answers.
        if frame[8:10] != b"\x00\x02":
            return frame
        with self._lock:  # of all connections together so many
            if not self.spoil:
                return frame
            self.spoil -= 1
        code = 10 + frame[10] + 1 + 4  # after its name, the number of partitions, and the partition
        return frame[:code] + struct.pack(">h", OUT_OF_ORDER) + frame[code + 2 :]
