"""Messages as the client library has them, for tests without brokers."""

from __future__ import annotations


class Said:
    """A message of a results topic: at its offset 7."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value

    def error(self) -> None: ...

    def topic(self) -> str:
        return "results"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7
