"""TCP proxies before brokers: what passes are Kafka's frames."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Self

from tests.support.kafka_frames import KafkaFrames
from tests.support.proxy import Link, Proxy


class KafkaProxy(Proxy):
    """One before a broker: whole frames pass, and answers carry their request's number."""

    def _cutter(self) -> Callable[[bytes], list[bytes]]:
        return KafkaFrames().feed

    def _is_answer(self, unit: bytes, request: bytes) -> bool:
        return unit[4:8] == request[8:12]


class LoneBrokerProxy(KafkaProxy):
    """One before the only broker of a cluster, which tells clients its own address: they get that
    of the proxy instead, and stay with it."""

    @classmethod
    def of(cls, url: str) -> Self:
        """One that stands before the broker at this address, `127.0.0.1:PORT`."""
        host, _, port = url.rpartition(":")
        return cls(host, int(port))

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        if up:
            return unit
        host, port = self._target
        theirs, ours = (host.encode() + struct.pack(">i", one) for one in (port, self.port))
        return unit.replace(theirs, ours)
