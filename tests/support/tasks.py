"""Tests of what runs in an event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def in_loop(work: Callable[[], Coroutine[Any, Any, T]], seconds: float = 50.0) -> T:
    """What the coroutine returns; fails where it leaves a task, or an error that nobody saw.

    Errors of threads count, too.
    """
    unseen: list[Any] = []

    async def run() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(seconds):
            result = await work()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left
        gc.collect()
        await asyncio.sleep(0)
        return result

    hook, threading.excepthook = threading.excepthook, unseen.append
    try:
        result = asyncio.run(run())
    finally:
        threading.excepthook = hook
    gc.collect()
    assert not unseen, unseen
    return result


async def soon(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What the condition gives, as soon as it is true; the loop goes on meanwhile."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.002)
    return found


async def turns_during(work: Awaitable[Any]) -> int:
    """How often the loop came round until that had ended, however it did."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    task.exception()
    return turns
