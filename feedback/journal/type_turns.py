"""Whose turn it is, of types that have rows due, where fewer rows are wanted than there are types.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

MOST_TYPES: Final = 4000
"""More than so many are not remembered: anybody can make up types."""


class TypeTurns:
    """The types in line: who comes new, or has had its turn, stands at the end."""

    def __init__(self) -> None:
        self._line: dict[str, None] = {}

    def in_line(self, types: Collection[str]) -> list[str]:
        """These types as they stand in line; those that come new in the order in which they are."""
        self._line |= dict.fromkeys(types)  # who stands there keeps its place
        if len(self._line) > MOST_TYPES:
            self._line = self._standing(types)
        return list(self._standing(types))

    def had(self, shares: Mapping[str, int]) -> None:
        """These have had their turn, with so many rows; who had the most stands last."""
        for kind in sorted(shares, key=shares.__getitem__):
            self._line.pop(kind, None)
            self._line[kind] = None

    def _standing(self, types: Collection[str]) -> dict[str, None]:
        wanted = set(types)
        return {kind: None for kind in self._line if kind in wanted}
