"""A proxy before a broker that answers producers with an error of the test's choice."""

from __future__ import annotations

import struct

from tests.support.proxy import KafkaFrames, LoneBrokerProxy, is_produce

OUT_OF_ORDER = 45
"""To the oldest request on its way: librdkafka gives its producer up."""


class ProduceProxy(LoneBrokerProxy):
    """One that can have a producer believe that the broker has refused what it took."""

    spoil = 0
    """So many answers that come next say OUT_OF_ORDER, of topics with one partition."""

    def __init__(self, host: str, target: int, port: int = 0) -> None:
        super().__init__(host, target, port)
        self._asked: set[bytes] = set()
        """Numbers of requests whose answers are to say so."""

    def _as_passed_on(self, data: bytes, *, up: bool) -> bytes:
        if up and self.spoil:
            for frame in filter(is_produce, KafkaFrames().feed(data)):
                assert struct.unpack_from(">h", frame, 6)[0] >= 9, "another form of answer"
                self._asked.add(frame[8:12])
        if not up and self._asked:
            frames = KafkaFrames().feed(data)
            assert sum(map(len, frames)) == len(data), "answers in pieces"
            data = b"".join(map(self._spoiled, frames))
        return super()._as_passed_on(data, up=up)

    def _spoiled(self, frame: bytes) -> bytes:
        # After length and number: no tags, one topic (compact: one more), as Produce answers.
        if not self.spoil or frame[4:8] not in self._asked or frame[8:10] != b"\x00\x02":
            return frame
        self._asked.discard(frame[4:8])
        self.spoil -= 1
        code = 10 + frame[10] + 1 + 4  # after its name, the number of partitions, and the partition
        return frame[:code] + struct.pack(">h", OUT_OF_ORDER) + frame[code + 2 :]
