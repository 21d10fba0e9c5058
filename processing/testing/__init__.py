"""For tests: of handlers by themselves, and of producer and handlers together, all in memory.

from processing.testing import FakeCursor, Kit, Sandbox, kill_worker, run, run_batch
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from processing.testing.fake_cursor import FakeCursor
    from processing.testing.kit import Kit, KitError, RunOutcome, run, run_batch
    from processing.testing.sandbox import Sandbox, kill_worker

_PLACES = {
    "FakeCursor": "fake_cursor",
    "Kit": "kit",
    "KitError": "kit",
    "RunOutcome": "kit",
    "Sandbox": "sandbox",
    "kill_worker": "sandbox",
    "run": "kit",
    "run_batch": "kit",
}

__all__ = [
    "FakeCursor",
    "Kit",
    "KitError",
    "RunOutcome",
    "Sandbox",
    "kill_worker",
    "run",
    "run_batch",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use: pytest loads the plugin beside it in every project.
    if name not in _PLACES:
        raise AttributeError(f"module 'processing.testing' has no attribute {name!r}")
    value = getattr(import_module(f"processing.testing.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
