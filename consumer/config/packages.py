"""A user's module or package that has the name of one of ours hides it from every child process.

Imports nothing of ours: that would be the hidden one.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("consumer", "processing", "feedback", "stack")


def hidden_package(folder: Path) -> str | None:
    """What is wrong where `folder`, from which apps are imported, has a module of such a name."""
    for name in OURS:
        found = PathFinder.find_spec(name, [str(folder)])
        if found is None or found.origin is None:
            continue  # a folder without __init__.py hides nothing
        origin = Path(found.origin).resolve()
        theirs = origin.parent if origin.name == "__init__.py" else origin
        if theirs != ROOT / name:
            return (
                f"{theirs} hides Oncepool's package {name} ({ROOT / name}): rename it, or move it"
                " into a package of your own. Imports look into the working directory first"
            )
    return None
