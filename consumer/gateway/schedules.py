"""What pages need of requests that come by the clock."""

from __future__ import annotations

from typing import Protocol

from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row


class ScheduleSource(Protocol):
    """Knows the schedules. Each raises OncepoolError."""

    async def look(self) -> list[Row]:
        """All of them by name, as dicts.

        name, type, cron, tz, missed, live, last_tick, last_id, next_at, ticks, skipped, paused_at,
        paused_by and paused_why.
        """

    async def pause(self, name: str, by: By) -> bool:
        """Its ticks become no requests until it is resumed; whether there is one."""

    async def resume(self, name: str, by: By) -> bool:
        """Its ticks become requests again; whether it was paused."""
