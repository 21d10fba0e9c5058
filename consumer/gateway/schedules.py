"""What pages need of requests that come by the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from consumer.gateway.database import DatabaseThreads
from feedback.journal.connections import Connection
from feedback.operations import schedules
from feedback.operations.bounded import bounded
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row
from processing.logs import get_logger

T = TypeVar("T")

LIST_WITHIN: Final = 1.0
"""Seconds for the list of them."""
WITHIN: Final = 10.0
"""Seconds in which the journal has to answer."""

log = get_logger("oncepool.gateway")


class ScheduleSource(Protocol):
    """Knows the schedules. Each raises OncepoolError."""

    async def look(self) -> list[Row]:
        """All of them by name, as list_schedules() has them."""

    async def pause(self, name: str, by: By) -> bool:
        """Its ticks become no requests until it is resumed; whether there is one."""

    async def resume(self, name: str, by: By) -> bool:
        """Its ticks from now on become requests again; whether it was paused."""


class JournalSchedules:
    """On the journal."""

    def __init__(self, threads: DatabaseThreads, schema: str) -> None:
        self._threads = threads
        self._schema = schema

    async def look(self) -> list[Row]:
        """As ScheduleSource has it."""

        def read(connection: Connection) -> list[Row]:
            with bounded(connection, LIST_WITHIN):
                return schedules.list_schedules(connection, schema=self._schema)

        return await self._run(read, again=True)

    async def pause(self, name: str, by: By) -> bool:
        """As ScheduleSource has it."""
        found = await self._run(
            lambda c: schedules.pause_schedules(c, [name], by, schema=self._schema)
        )
        if found:
            log.info("schedule paused", name=name, who=by.who, why=by.why)
        return bool(found)

    async def resume(self, name: str, by: By) -> bool:
        """As ScheduleSource has it."""
        found = await self._run(
            lambda c: schedules.resume_schedules(c, [name], by, schema=self._schema)
        )
        if found:
            log.info("schedule resumed", name=name, who=by.who, why=by.why)
        return bool(found)

    async def _run(self, ask: Callable[[Connection], T], *, again: bool = False) -> T:
        return await self._threads.run(ask, WITHIN, again=again)
