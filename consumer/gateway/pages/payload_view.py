"""Payloads, results and headers as pages show them: readable, bounded, fields hidden. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import Any, Final, NamedTuple

from feedback.contract.payloads import parse_json

MOST: Final = 64 * 1024
"""Characters that are shown."""
HIDDEN: Final = "•••"
_DEEPEST: Final = 100
_FOR_EACH: Final = 16
"""Characters that a header counts for beside its own."""


class Shown(NamedTuple):
    """A value as text. `note`: what is not to be seen of it."""

    text: str
    note: str = ""


class PayloadView:
    """Shows values without certain fields."""

    def __init__(self, masked: Iterable[str], most: int = MOST) -> None:
        """At most so many characters of each."""
        self._most = most
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
        cleaner = _Cleaner(self._masked, self._most)
        clean = cleaner.clean(value, 0)
        text = json.dumps(clean, indent=2, ensure_ascii=False, default=str)
        hidden = cleaner.hidden
        said = f"hidden: {', '.join(sorted(hidden))}" if hidden else ""
        return self._cut(text, said)

    def headers(self, pairs: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, str]]:
        """Names and texts, as far as so many characters show them."""
        pairs, shown, left = list(pairs), list[tuple[str, str]](), self._most
        for name, value in pairs:
            if left <= 0:
                shown.append(("…", f"{len(pairs) - len(shown)} more"))
                break
            text = self._header(name, value)[:left]
            shown.append((name[:left], text))
            left -= len(name) + len(text) + _FOR_EACH
        return shown

    def _header(self, name: str, value: bytes | None) -> str:
        if name.lower().removeprefix("ce_") in self._masked:
            return HIDDEN
        return "" if value is None else value.decode("utf-8", "backslashreplace")

    def _other(self, data: bytes) -> Shown:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Shown(
                data[: self._most // 3].hex(" "), f"not text: its {len(data)} bytes in hex"
            )
        if names := [name for name in sorted(self._masked) if name in text.lower()]:
            return Shown("", f"hidden: it is no JSON, and speaks of {', '.join(names)}")
        return self._cut(text, "no JSON")

    def _cut(self, text: str, note: str) -> Shown:
        if len(text) <= self._most:
            return Shown(text, note)
        more = f"the first {self._most} characters"
        return Shown(text[: self._most], f"{note}; {more}" if note else more)


class _Cleaner:
    """Copies a value without certain fields, as far as so many characters can show it."""

    def __init__(self, masked: Collection[str], most: int) -> None:
        self.hidden: set[str] = set()
        self._masked = masked
        self._most = most
        # Counted are fewer characters than the copy takes: what is left out would be cut anyway.
        self._left = most + 1

    def clean(self, value: Any, depth: int) -> Any:
        """The copy of what stands so deep."""
        self._left -= 1 + 2 * depth
        if depth > _DEEPEST:
            return HIDDEN
        if isinstance(value, dict):
            clean = {}
            for name, inner in value.items():
                if self._left <= 0:
                    break
                self._left -= len(str(name))
                if str(name).lower() in self._masked:
                    self.hidden.add(str(name))
                    clean[name] = HIDDEN
                else:
                    clean[name] = self.clean(inner, depth + 1)
            return clean
        if isinstance(value, list):
            return [
                self.clean(inner, depth + 1) for inner in takewhile(lambda _: self._left > 0, value)
            ]
        if isinstance(value, str):
            value = value[: self._most + 1]
            self._left -= len(value)
        return value


def differing(one: str, other: str) -> tuple[Collection[int], Collection[int]]:
    """Numbers of the lines, from 0, that stand in one text and not in the other."""
    left, right = one.splitlines(), other.splitlines()
    on_left, on_right = set(left), set(right)
    return (
        {n for n, line in enumerate(left) if line not in on_right},
        {n for n, line in enumerate(right) if line not in on_left},
    )
