"""Places for what takes much memory: so many at once, and others wait, but not for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from consumer.gateway.problems import unavailable

PATIENCE: Final = 10.0
"""Seconds that a place is waited for."""


class Places:
    """So many at once."""

    def __init__(self, most: int, patience: float = PATIENCE) -> None:
        self._free = asyncio.Semaphore(most)
        self._patience = patience

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """One of them. Raises HttpProblem where none is given back in time."""
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise unavailable(
                "others are given as many large answers as this gateway holds at once: ask again,"
                " or for less at once"
            ) from None
        try:
            yield
        finally:
            self._free.release()
