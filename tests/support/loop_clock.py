"""A running event loop whose time passes when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def stopped_clock() -> Callable[[float], None]:
    """Stops the clock of the running loop; what it returns has so many seconds pass."""
    loop: Any = asyncio.get_running_loop()
    now = loop.time()
    loop.time = lambda: now

    def later(seconds: float) -> None:
        nonlocal now
        now += seconds

    return later
