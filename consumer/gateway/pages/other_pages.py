"""What no list shows: oddities of the journal and of commits, and what operators did."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.admin.lag import UnfinishedOffsets
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import PageJournal
from consumer.gateway.pages.payload_view import PayloadView, Shown, differing
from consumer.gateway.pages.request_pages import journal_of
from consumer.gateway.pages.visitor import UI, Visitor, VisitorHere
from feedback.client.event_loop import in_thread
from feedback.errors import OncepoolError
from feedback.journal.rows import stored_headers
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
    journal = journal_of(who)
    resent, groups, clashes, counts, unfinished = await asyncio.gather(
        _asked(who, journal, "most_resent", HOURS, MOST),
        _asked(who, journal, "coalesced_groups", HOURS, MOST),
        _asked(who, journal, "conflicts", MOST),
        _asked(who, journal, "not_run_counts", HOURS),
        who.pages.services.unfinished(),
    )
    gaps = unfinished.value or []
    became = [(gap, *await _became(who, journal, gap)) for gap in gaps[:MOST_GAPS]]
    # Many payloads make many lines: nobody else waits for them.
    return await in_thread(
        lambda: page(
            request,
            who,
            "oddities.html",
            title="Oddities",
            hours=HOURS,
            most=MOST,
            resent=resent,
            groups=groups,
            conflicts=[_side_by_side(who, row) for row in clashes[0]],
            conflicts_problem=clashes[1],
            counts=counts,
            unfinished=unfinished,
            gaps=became,
            more_gaps=gaps[MOST_GAPS:],
        )
    )


@router.get(f"{UI}/audit")
async def audit(request: Request, who: VisitorHere) -> Response:
    """What operators did last, who and why."""
    rows, problem = await _asked(who, journal_of(who), "latest_changes", 200)
    return page(request, who, "audit.html", title="Audit", rows=rows, problem=problem)


Answer = tuple[list[Row], str]
"""Rows, and why there are none."""


async def _asked(who: Visitor, journal: PageJournal, name: str, *arguments: Any) -> Answer:
    """One part of a page that is worth having without it, of the types that he may see."""
    try:
        return await journal.look(name, *arguments, types=who.types), ""
    except OncepoolError as error:
        return [], str(error)


async def _became(who: Visitor, journal: PageJournal, gap: UnfinishedOffsets) -> Answer:
    place, offsets = (gap.topic, gap.partition), (gap.mark, gap.committed)
    return await _asked(who, journal, "requests_at_offsets", place, offsets, HOURS, MOST)


def _one_side(view: PayloadView, row: Row, column: str) -> Shown:
    size = row[f"{column}_bytes"]
    if row[column] is None and size is not None:
        return Shown("", f"too long for this page: {size} bytes")
    return view.payload(row[column])


def _side_by_side(who: Visitor, row: Row) -> Row:
    """Both payloads, with the lines marked in which they differ."""
    view = PayloadView(who.parts.settings.gateway_masked_fields, MOST_BESIDE)
    stored, other = _one_side(view, row, "payload"), _one_side(view, row, "other_payload")
    other_type = dict(view.headers(stored_headers(row["other_headers"]))).get("ce_type")
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
