"""Answers that are kept for a while: however many look at a page, its services are asked once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from consumer.config.masking import mask_url
from feedback.errors import OncepoolError

T = TypeVar("T")

FIRST_WAIT: Final = 2.0
"""Seconds that a page waits for an answer where it has none at all."""
NEXT_WAIT: Final = 0.1
"""Where it has an old one."""


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """What was answered last, and when. `problem`: why there is nothing newer."""

    value: T | None
    at: datetime | None
    problem: str = ""


class Kept(Generic[T]):
    """One question, asked again when its answer is older than `seconds` and somebody looks."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[T]],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._until = float("-inf")
        self._last: Snapshot[T] = Snapshot(None, None, "not known yet: it is being asked")

    async def look(self, next_wait: float = NEXT_WAIT) -> Snapshot[T]:
        """The last answer; raises nothing.

        Waits for FIRST_WAIT seconds at most, for `next_wait` where there is an old one.
        """
        if self._task is None or (self._task.done() and self._clock() >= self._until):
            self._task = asyncio.create_task(self._refresh())
        wait = FIRST_WAIT if self._last.at is None and not self._task.done() else next_wait
        await asyncio.wait({self._task}, timeout=wait)
        return self._last

    def forget(self) -> None:
        """What is known is old: the next look asks anew."""
        self._until = float("-inf")

    async def _refresh(self) -> None:
        try:
            self._last = Snapshot(await self._ask(), datetime.now(UTC))
        except OncepoolError as error:
            self._last = Snapshot(self._last.value, self._last.at, mask_url(str(error)))
        finally:
            self._until = self._clock() + self._seconds
