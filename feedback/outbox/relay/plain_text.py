"""Text that a row takes whatever its database's encoding."""

from __future__ import annotations

from typing import Final

_LONGEST_ERROR: Final = 1_000
"""Characters."""


def in_ascii(text: str) -> str:
    """In characters that every encoding has."""
    return text.encode("ascii", "backslashreplace").decode()


def as_error(text: str) -> str:
    """The same, and no longer than an error may be."""
    return in_ascii(text)[:_LONGEST_ERROR]
