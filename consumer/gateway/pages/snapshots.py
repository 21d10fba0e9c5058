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
from processing.logs import get_logger

log = get_logger("oncepool.gateway")

T = TypeVar("T")

FIRST_WAIT: Final = 2.0
"""Seconds that a page waits for an answer where it has none at all."""
NEXT_WAIT: Final = 0.1
"""Where it has an old one."""
LONGEST: Final = 15.0
"""Seconds after which an answer is shown no more. Longer than any is kept before it is asked anew:
where somebody looks all the time the next one comes before."""
NOT_YET: Final = "not known yet: it is being asked"


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """What was answered last, and when. `problem`: why there is nothing newer."""

    value: T | None
    at: datetime | None
    problem: str = ""


class Kept(Generic[T]):
    """One question, asked again when its answer is older than `seconds` and somebody looks.

    An answer that is older than LONGEST is none: nobody has looked for as long.
    """

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
        self._last: Snapshot[T] = Snapshot(None, None, NOT_YET)
        self._old_at = float("-inf")
        """When the last answer is to be shown no more."""

    async def look(self, next_wait: float = NEXT_WAIT) -> Snapshot[T]:
        """The last answer; raises nothing.

        Waits for FIRST_WAIT seconds at most, for `next_wait` where there is an old one.
        """
        if self._task is None or (self._task.done() and self._clock() >= self._until):
            self._task = asyncio.create_task(self._refresh())
        wait = FIRST_WAIT if self._old and not self._task.done() else next_wait
        await asyncio.wait({self._task}, timeout=wait)
        if not self._old:
            return self._last
        known = self._task.done() and self._last.problem
        return Snapshot(None, None, known or NOT_YET)

    @property
    def _old(self) -> bool:
        return self._clock() >= self._old_at

    def forget(self) -> None:
        """What is known is old: the next look asks anew."""
        self._until = float("-inf")

    async def _refresh(self) -> None:
        try:
            self._last = Snapshot(await self._ask(), datetime.now(UTC))
            self._old_at = self._clock() + LONGEST
        except Exception as error:
            if not isinstance(error, OncepoolError):
                log.exception("what a page shows could not be found out")
            self._last = Snapshot(self._last.value, self._last.at, mask_url(str(error)))
        finally:
            self._until = self._clock() + self._seconds
