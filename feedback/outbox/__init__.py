"""Requests written in the transaction that decides on them, and sent after its commit.

Names are loaded on first use: the settings read this package's defaults and nothing more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedback.outbox.adding import add, add_many

__all__ = ["add", "add_many"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("feedback.outbox.adding"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
