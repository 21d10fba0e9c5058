"""Imports without an optional package, which a library would load wherever it is installed.

Processes of an instance start again after each death, and the more slowly the more they load.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def not_installed(package: str) -> Iterator[None]:
    """What is imported inside does without this package, whether it is loaded or not.

    For the time before an app is loaded: its threads could want the package meanwhile.
    """
    loaded = sys.modules.pop(package, None)
    sys.modules[package] = None  # type: ignore[assignment] # Python's way to say so
    try:
        yield
    finally:
        del sys.modules[package]
        if loaded is not None:
            sys.modules[package] = loaded
