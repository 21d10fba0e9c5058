"""The chaos suite's ledger: messages that were confirmed without their place."""

from __future__ import annotations

from typing import Any

from tests.chaos.real.producer import Copy, SendLedger
from tests.chaos.real.traffic import Kind
from tests.chaos.real.unplaced import find_places


class FakeMessage:
    """As librdkafka gives it, read or reported."""

    def __init__(self, partition: int, offset: int | None, timestamp: int, value: bytes) -> None:
        self._partition, self._offset = partition, offset
        self._timestamp, self._value = timestamp, value

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int | None:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self._value


def copy(id: str, partition: int, offset: int = 0) -> Copy:
    return Copy(id, Kind.REQUEST, 0, partition, offset, 0.0)


def test_places_are_found_among_messages_that_are_the_same_and_nobodys() -> None:
    known = copy("a", 0, 5)
    lost: list[tuple[Copy, Any]] = [
        (copy("a", 0), FakeMessage(0, None, 9, b"x")),
        (copy("b", 1), FakeMessage(1, None, 9, b"x")),
    ]
    ledger = SendLedger(copies=[known], unplaced=lost)
    topic: list[Any] = [
        FakeMessage(0, 5, 9, b"x"),
        FakeMessage(0, 6, 9, b"y"),
        FakeMessage(0, 7, 9, b"x"),
        FakeMessage(1, 3, 8, b"x"),
        FakeMessage(1, 4, 9, b"x"),
    ]
    find_places(ledger, topic)
    places = [(one.id, one.partition, one.offset) for one in ledger.copies]
    assert places == [("a", 0, 5), ("a", 0, 7), ("b", 1, 4)]
    assert ledger.unplaced == []
