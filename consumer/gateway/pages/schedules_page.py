"""Schedules: looked at, paused and resumed."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.gateway.calls import named
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.visitor import UI, FormHere, Visitor, VisitorHere, why_of
from consumer.gateway.problems import NO_SCHEDULE, HttpProblem, invalid, unknown
from consumer.gateway.schedules import ScheduleSource
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row

router = APIRouter(include_in_schema=False)


@router.get(f"{UI}/schedules")
async def schedules(request: Request, who: VisitorHere) -> Response:
    """Requests that come by the clock."""
    return await _shown(request, who, "")


@router.post(f"{UI}/schedules")
async def change(request: Request, sent: FormHere) -> Response:
    """Pauses or resumes one."""
    who, form = sent
    source = _source(who)
    name, action = form.one("name"), form.one("action")
    named("the name", name)
    by = By(f"gateway:{who.caller.name}", why_of(form))
    if all(row["name"] != name for row in await _own(who)):
        raise unknown(name, NO_SCHEDULE)
    if action == "pause":
        moved = await source.pause(name, by)
    elif action == "resume":
        moved = await source.resume(name, by)
    else:
        raise invalid("action: pause or resume")
    return await _shown(request, who, f"{name}: {action}d" if moved else f"{name}: as it was")


def _source(who: Visitor) -> ScheduleSource:
    if who.pages.schedules is None:
        raise HttpProblem(501, "not_configured", "this gateway has no journal: set database_url")
    return who.pages.schedules


async def _own(who: Visitor) -> list[Row]:
    return [row for row in await _source(who).look() if who.caller.may_see(row["type"])]


async def _shown(request: Request, who: Visitor, said: str) -> Response:
    rows = await _own(who)
    return page(request, who, "schedules.html", title="Schedules", said=said, rows=rows)
