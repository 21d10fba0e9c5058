"""Limits that hold while instances run, looked at and changed over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from consumer.admin.limits import (
    CHANGED,
    LAST_HOLD,
    NOT_NOTED,
    described,
    limits_redis,
    noted,
    said_of,
)
from consumer.config.settings import Settings
from consumer.gateway.database import DatabaseThreads
from feedback.client.event_loop import in_thread
from feedback.errors import OncepoolError
from feedback.operations.operator_changes import note_changes
from feedback.operations.request_actions import By
from processing.cluster.instances import instances
from processing.cluster.limits import Changes, RedisLimitsStore
from processing.logs import get_logger

NOTED_WITHIN: Final = 5.0
"""Seconds in which the journal has to keep who changed a limit."""

log = get_logger("oncepool.gateway")


@dataclass(frozen=True, slots=True)
class LimitsSeen:
    """The limits as described() has them, and the types that live instances have handlers for."""

    limits: dict[str, Any]
    types: list[str]
    said: tuple[str, ...] = ()
    """Of a change: who applies it, and what is odd about it."""


class LimitsBoard(Protocol):
    """Looks and changes. Raises StoreUnavailable; InvalidLimit for what may not stand."""

    async def look(self) -> LimitsSeen:
        """What holds now."""

    async def change(self, changes: Changes, by: By) -> LimitsSeen:
        """Sets and takes away, all or nothing."""


class RedisLimitsBoard:
    """On the hash in Redis. Who changed what is kept in the journal, where there is one."""

    def __init__(self, settings: Settings, threads: DatabaseThreads | None = None) -> None:
        self._settings = settings
        self._threads = threads

    async def look(self) -> LimitsSeen:
        """As LimitsBoard has it."""
        return await in_thread(self._look)

    async def change(self, changes: Changes, by: By) -> LimitsSeen:
        """As LimitsBoard has it."""
        await in_thread(self._change, changes)
        said = {setting.field: figure for setting, figure in changes.items()}
        log.info("limits changed", changes=said, who=by.who, why=by.why)
        problem = await self._note(changes, by)
        seen = await in_thread(self._look, changes)
        return replace(seen, said=(*seen.said, problem)) if problem else seen

    async def _note(self, changes: Changes, by: By) -> str:
        """Keeps who it was; why it could not. The change holds: an outage is when it is wanted."""
        threads, schema = self._threads, self._settings.database_schema
        if threads is None:
            return ""
        try:
            await threads.run(
                lambda c: note_changes(c, noted(changes), by, schema=schema), NOTED_WITHIN
            )
        except OncepoolError as error:
            log.warning("a change of limits is not in the audit", error=str(error), who=by.who)
            return f"{NOT_NOTED}: {error}"
        return ""

    def _change(self, changes: Changes) -> None:
        with limits_redis(self._settings) as client:
            RedisLimitsStore(client, self._settings.redis_prefix).change(changes)

    def _look(self, changes: Changes | None = None) -> LimitsSeen:
        """`changes`: those that were made just now."""
        holds = CHANGED if changes else LAST_HOLD
        with limits_redis(self._settings, holds) as client:
            found = RedisLimitsStore(client, self._settings.redis_prefix).read()
            live = instances(client, self._settings.redis_prefix)
        types = sorted({kind for facts in live for kind in facts.get("types") or ()})
        said = [] if changes is None else said_of(changes, found, live)
        return LimitsSeen(described(found, live), types, tuple(said))
