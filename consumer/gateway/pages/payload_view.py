"""Payloads, results and headers as pages show them: readable, bounded, fields hidden. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from feedback.contract.payloads import parse_json

MOST: Final = 64 * 1024
"""Characters that are shown."""
HIDDEN: Final = "•••"
_DEEPEST: Final = 100


class Shown(NamedTuple):
    """A value as text. `note`: what is not to be seen of it."""

    text: str
    note: str = ""


class PayloadView:
    """Shows values without certain fields."""

    def __init__(self, masked: Iterable[str]) -> None:
        self._masked = frozenset(name.lower() for name in masked)

    def payload(self, data: bytes | None) -> Shown:
        """What a request, or a message, carries."""
        if data is None:
            return Shown("", "not kept")
        try:
            value = parse_json(bytes(data))
        except (ValueError, RecursionError):
            return self._other(bytes(data))
        return self.value(value)

    def value(self, value: Any) -> Shown:
        """A value that JSON has a form for."""
        hidden: set[str] = set()
        clean = self._clean(value, hidden, 0)
        text = json.dumps(clean, indent=2, ensure_ascii=False, default=str)
        said = f"hidden: {', '.join(sorted(hidden))}" if hidden else ""
        return _cut(text, said)

    def headers(self, pairs: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, str]]:
        """Names and texts."""
        return [(name, self._header(name, value)) for name, value in pairs]

    def _header(self, name: str, value: bytes | None) -> str:
        if name.lower().removeprefix("ce_") in self._masked:
            return HIDDEN
        return "" if value is None else value.decode("utf-8", "backslashreplace")

    def _other(self, data: bytes) -> Shown:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return _cut(data[: MOST // 3].hex(" "), f"not text: its {len(data)} bytes in hex")
        if names := [name for name in sorted(self._masked) if name in text.lower()]:
            return Shown("", f"hidden: it is no JSON, and speaks of {', '.join(names)}")
        return _cut(text, "no JSON")

    def _clean(self, value: Any, hidden: set[str], depth: int) -> Any:
        if depth > _DEEPEST:
            return HIDDEN
        if isinstance(value, dict):
            clean = {}
            for name, inner in value.items():
                if str(name).lower() in self._masked:
                    hidden.add(str(name))
                    clean[name] = HIDDEN
                else:
                    clean[name] = self._clean(inner, hidden, depth + 1)
            return clean
        if isinstance(value, list):
            return [self._clean(inner, hidden, depth + 1) for inner in value]
        return value


def differing(one: str, other: str) -> tuple[Collection[int], Collection[int]]:
    """Numbers of the lines, from 0, that stand in one text and not in the other."""
    left, right = one.splitlines(), other.splitlines()
    return (
        {n for n, line in enumerate(left) if line not in set(right)},
        {n for n, line in enumerate(right) if line not in set(left)},
    )


def _cut(text: str, note: str) -> Shown:
    if len(text) <= MOST:
        return Shown(text, note)
    more = f"the first {MOST} of {len(text)} characters"
    return Shown(text[:MOST], f"{note}; {more}" if note else more)
