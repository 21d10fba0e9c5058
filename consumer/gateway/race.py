"""Work that is given up where something else comes before its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unless(work: Awaitable[T], end: Coroutine[Any, Any, None], error: Exception) -> T:
    """What `work` returns; raises the error where `end` returns before."""
    task, other = asyncio.ensure_future(work), asyncio.ensure_future(end)
    try:
        await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise error
        return await task
    finally:
        for one in (task, other):
            one.cancel()
        await asyncio.gather(task, other, return_exceptions=True)
