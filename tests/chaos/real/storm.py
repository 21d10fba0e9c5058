"""A storm of locks: while it blows, handlers want the same few rows, in different orders."""

from __future__ import annotations

import random
from pathlib import Path

HOT = range(90, 94)
"""Accounts that nobody else wants."""
WANTED = 2


def storm_of(entries: Path) -> Path:
    """The file that is there while it blows, beside that of the handlers' entries."""
    return entries.with_name("storm")


def wanted(chance: random.Random) -> list[int]:
    """Accounts that one handler locks one after the other."""
    return chance.sample(HOT, WANTED)
