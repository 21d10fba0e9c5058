"""A proxy before a broker that tells clients of no brokers, as one does that has just started."""

from __future__ import annotations

import struct

from tests.support.proxy import KafkaFrames, LoneBrokerProxy, is_metadata


class BrokerlessProxy(LoneBrokerProxy):
    """One that can take the brokers out of the metadata of topics.

    Until a controller has let a broker that starts take part, that broker knows topics and no
    brokers: its answers look so.
    """

    brokerless = 0
    """So many answers that come next name no brokers."""

    def __init__(self, host: str, target: int, port: int = 0) -> None:
        super().__init__(host, target, port)
        self._asked: set[bytes] = set()
        """Numbers of requests for metadata on their way."""

    def _as_passed_on(self, data: bytes, *, up: bool) -> bytes:
        if up and self.brokerless:
            for frame in filter(is_metadata, KafkaFrames().feed(data)):
                assert struct.unpack_from(">h", frame, 6)[0] >= 9, "another form of answer"
                self._asked.add(frame[8:12])
        if not up and self._asked:
            frames = KafkaFrames().feed(data)
            if sum(map(len, frames)) == len(data):
                data = b"".join(map(self._without_brokers, frames))
        return super()._as_passed_on(data, up=up)

    def _without_brokers(self, frame: bytes) -> bytes:
        if not self.brokerless or frame[4:8] not in self._asked:
            return frame
        self._asked.discard(frame[4:8])
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
