"""What pages show of the services as a whole: instances, limits, lag, outbox, figures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from consumer.admin.lag import UnfinishedOffsets, group_unfinished
from consumer.admin.overview import Look, look
from consumer.config.settings import Settings
from consumer.gateway.pages.journal_pages import FIGURES, OverTime, PageJournal
from consumer.gateway.pages.snapshots import Kept, Snapshot
from feedback.client.event_loop import in_thread
from feedback.operations.request_reads import Row
from feedback.operations.statistics import Figures

T = TypeVar("T")

MINUTES: Final = 60
UNFINISHED_WAIT: Final = 0.05
"""Seconds for newer offsets where there are old ones: what became of them is asked afterwards."""


@dataclass(slots=True)
class Whole:
    """One look at all; each part as old as `asked` says."""

    look: Look
    over_time: OverTime | None = None
    asked: dict[str, datetime] = field(default_factory=dict)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest part of it was asked for."""
        return min(self.asked.values(), default=None)


class ServicesSeen(Protocol):
    """What pages ask of the services."""

    async def whole(self) -> Whole:
        """All of it, from what is kept."""

    async def running(self) -> Snapshot[list[Row]]:
        """What runs right now, each with its instance; None where that is not known."""

    async def unfinished(self) -> Snapshot[list[UnfinishedOffsets]]:
        """What is committed and was not known to be finished."""

    def forget(self) -> None:
        """Somebody has changed something: it is asked anew."""


class Services:
    """On the configured services."""

    def __init__(self, settings: Settings, journal: PageJournal | None) -> None:
        seconds = {"instances": 2.0, "topics": 10.0, "outbox": 10.0}
        configured = {
            "instances": bool(settings.redis_url),
            "topics": bool(settings.kafka_bootstrap_servers and settings.kafka_topics),
            "outbox": bool(settings.outbox_database_url),
        }
        ask = partial(look, settings, MINUTES, within=FIGURES)
        self._looks: dict[str, Kept[Look]] = {
            name: Kept(partial(in_thread, partial(ask, {name})), seconds[name])
            for name, there in configured.items()
            if there
        }
        self._figures: Kept[Figures] | None = None
        self._over_time: Kept[OverTime] | None = None
        if journal is not None:
            self._figures = Kept(journal.figures, 5.0)
            self._over_time = Kept(partial(journal.over_time, MINUTES), 10.0)
        self._unfinished = Kept(partial(in_thread, partial(group_unfinished, settings)), 10.0)

    async def whole(self) -> Whole:
        """As ServicesSeen has it."""
        whole = Whole(Look())
        names = list(self._looks)
        looks, figures, over_time = await asyncio.gather(
            asyncio.gather(*(self._looks[name].look() for name in names)),
            _asked(self._figures),
            _asked(self._over_time),
        )
        for name, found in zip(names, looks, strict=True):
            _take(whole, name, found)
        if figures is not None:
            whole.look.journal = figures.value
            _note(whole, "journal", figures)
        if over_time is not None:
            whole.over_time = over_time.value
            _note(whole, "times", over_time)
        return whole

    async def running(self) -> Snapshot[list[Row]]:
        """As ServicesSeen has it. Instances alone are asked: a look at one counts nothing."""
        kept = self._looks.get("instances")
        return Snapshot([], None) if kept is None else running_in(await kept.look())

    async def unfinished(self) -> Snapshot[list[UnfinishedOffsets]]:
        """As ServicesSeen has it."""
        return await self._unfinished.look(UNFINISHED_WAIT)

    def forget(self) -> None:
        """As ServicesSeen has it."""
        kept: Iterable[Kept[Any] | None] = (self._figures, *self._looks.values())
        for one in kept:
            if one is not None:
                one.forget()


def running_in(found: Snapshot[Look]) -> Snapshot[list[Row]]:
    """What its instances run, where they were heard of."""
    look = found.value
    if look is None or look.instances is None:
        why = found.problem if look is None else look.problems.get("instances", found.problem)
        return Snapshot(None, found.at, why)
    return Snapshot(running_of(look), found.at)


def running_of(look: Look) -> list[Row]:
    """What its instances run, each row with its instance."""
    return [
        {**row, "instance": facts["id"]}
        for facts in look.instances or ()
        for row in facts.get("running_requests") or ()
    ]


async def _asked(kept: Kept[T] | None) -> Snapshot[T] | None:
    return None if kept is None else await kept.look()


def _take(whole: Whole, name: str, found: Snapshot[Look]) -> None:
    if found.value is not None:
        part = found.value
        whole.look.problems |= part.problems
        if name == "instances":
            whole.look.instances, whole.look.limits = part.instances, part.limits
        elif name == "topics":
            whole.look.topics = part.topics
        else:
            whole.look.outbox = part.outbox
    _note(whole, name, found)


def _note(whole: Whole, name: str, found: Snapshot[Any]) -> None:
    if found.at is not None:
        whole.asked[name] = found.at
    if found.problem:
        whole.look.problems[name] = found.problem
