"""What no list shows: oddities of the journal and of commits, and what operators did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.admin.lag import UnfinishedOffsets
from consumer.gateway.calls import unless_gone
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import DEEP_ODD, ODD, ODD_OFFSETS, PageJournal
from consumer.gateway.pages.payload_view import PayloadView, Shown, differing
from consumer.gateway.pages.request_pages import journal_of
from consumer.gateway.pages.snapshots import Snapshot
from consumer.gateway.pages.visitor import UI, Visitor, VisitorHere
from feedback.client.event_loop import in_thread
from feedback.errors import OncepoolError
from feedback.journal.rows import readable_headers
from feedback.operations.inspection import NEWEST, OffsetsAsked
from feedback.operations.request_reads import Row

router = APIRouter(include_in_schema=False)

HOURS: Final = 24
MOST: Final = 50
MOST_BESIDE: Final = 8 * 1024
"""Characters of each of two payloads."""
MOST_GAPS: Final = 10
"""Partitions of which it is looked up what became of what is committed and not finished."""


@router.get(f"{UI}/oddities")
async def oddities(request: Request, who: VisitorHere) -> Response:
    """Resends, coalesced groups, what is committed and not finished, conflicts."""
    deep = request.query_params.get("deep") == "1"
    asking = _all_odd(who, journal_of(who), deep=deep)
    found = await (unless_gone(request, asking) if deep else asking)
    unfinished, became = found.unfinished
    gaps = unfinished.value or []
    # Many payloads make many lines: nobody else waits for them.
    return await in_thread(
        lambda: page(
            request,
            who,
            "oddities.html",
            title="Oddities",
            deep=deep,
            seconds=(ODD, DEEP_ODD),
            newest=NEWEST,
            hours=HOURS,
            most=MOST,
            resent=found.resent,
            groups=found.groups,
            conflicts=[_side_by_side(who, row) for row in found.conflicts[0]],
            conflicts_problem=found.conflicts[1],
            counts=found.counts,
            unfinished=unfinished,
            gaps=[(gap, _rows_of(gap, became)) for gap in gaps[:MOST_GAPS]],
            became=became,
            more_gaps=gaps[MOST_GAPS:],
        )
    )


@router.get(f"{UI}/audit")
async def audit(request: Request, who: VisitorHere) -> Response:
    """What operators did last, who and why."""
    rows, problem = await _asked(who, journal_of(who), "latest_changes", 200)
    return page(
        request, who, "audit.html", title="Audit", rows=rows, problem=problem, newest=NEWEST
    )


class LookedAt(NamedTuple):
    """A part of the page of oddities."""

    rows: list[Row]
    back: float = 0.0
    """Seconds."""
    whole: bool = True
    problem: str = ""
    """Why there are no rows."""


class AllOdd(NamedTuple):
    """All parts of the page of oddities."""

    resent: LookedAt
    groups: LookedAt
    conflicts: tuple[list[Row], str]
    counts: LookedAt
    unfinished: tuple[Snapshot[list[UnfinishedOffsets]], LookedAt]


async def _all_odd(who: Visitor, journal: PageJournal, *, deep: bool) -> AllOdd:
    back = partial(_looked, who, journal, seconds=DEEP_ODD if deep else ODD)
    found = await asyncio.gather(
        back("most_resent", HOURS, MOST),
        back("coalesced_groups", HOURS, MOST),
        _asked(who, journal, "conflicts", MOST),
        back("not_run_counts", HOURS),
        _unfinished(who, partial(back, seconds=DEEP_ODD if deep else ODD_OFFSETS)),
    )
    return AllOdd(*found)


async def _asked(
    who: Visitor, journal: PageJournal, name: str, *arguments: Any
) -> tuple[list[Row], str]:
    """One part of a page that is worth having without it, of the types that he may see."""
    try:
        return await journal.look(name, *arguments, types=who.types), ""
    except OncepoolError as error:
        return [], str(error)


async def _looked(
    who: Visitor, journal: PageJournal, name: str, *arguments: Any, seconds: float
) -> LookedAt:
    """The same of what is looked for in windows of time."""
    try:
        found = await journal.look_back(name, *arguments, types=who.types, seconds=seconds)
    except OncepoolError as error:
        return LookedAt([], problem=str(error))
    return LookedAt(found.rows, found.back.total_seconds(), found.whole)


async def _unfinished(
    who: Visitor, back: Callable[..., Awaitable[LookedAt]]
) -> tuple[Snapshot[list[UnfinishedOffsets]], LookedAt]:
    """What is committed and not finished, and what the journal has of it."""
    unfinished = await who.pages.services.unfinished()
    places = [
        OffsetsAsked(gap.topic, gap.partition, gap.mark, gap.committed)
        for gap in (unfinished.value or [])[:MOST_GAPS]
    ]
    if not places:
        return unfinished, LookedAt([])
    return unfinished, await back("requests_at_offsets", places, HOURS, MOST)


def _rows_of(gap: UnfinishedOffsets, became: LookedAt) -> list[Row]:
    place = (gap.topic, gap.partition)
    return [row for row in became.rows if (row["topic"], row["partition"]) == place]


def _one_side(view: PayloadView, row: Row, column: str) -> Shown:
    size = row[f"{column}_bytes"]
    if row[column] is None and size is not None:
        return Shown("", f"too long for this page: {size} bytes")
    return view.payload(row[column])


def _side_by_side(who: Visitor, row: Row) -> Row:
    """Both payloads, with the lines marked in which they differ."""
    view = PayloadView(who.parts.settings.gateway_masked_fields, MOST_BESIDE)
    stored, other = _one_side(view, row, "payload"), _one_side(view, row, "other_payload")
    other_type = dict(view.headers(readable_headers(row["other_headers"]))).get("ce_type")
    if not who.caller.may_see(other_type):
        other, other_type = Shown("", "of a type that your key is not for"), None
    left, right = differing(stored.text, other.text)
    return {
        **row,
        "stored": [(line, n in left) for n, line in enumerate(stored.text.splitlines())],
        "stored_note": stored.note,
        "other": [(line, n in right) for n, line in enumerate(other.text.splitlines())],
        "other_note": other.note,
        "other_type": other_type or "",
    }
