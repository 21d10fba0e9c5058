"""Requests: looked for, and each with all that is known of it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from consumer.gateway.calls import named, unless_gone
from consumer.gateway.pages.filters import IN_JOURNAL, FilterRefused, RequestFilters
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import DEEP_SEARCH, SEARCH, PageJournal
from consumer.gateway.pages.payload_view import PayloadView
from consumer.gateway.pages.timeline import origin, timeline
from consumer.gateway.pages.visitor import UI, Visitor, VisitorHere
from consumer.gateway.pages.words import trace_id
from consumer.gateway.problems import HttpProblem, invalid, unknown
from consumer.gateway.unjournaled import standing
from feedback.client.event_loop import in_thread
from feedback.contract.states import FINAL
from feedback.journal.rows import readable_headers
from feedback.operations.bounded import TookTooLong
from feedback.operations.request_reads import Row, matches

router = APIRouter(include_in_schema=False)
Name = Annotated[str, Path(min_length=1, max_length=200)]


@router.get(f"{UI}/requests")
async def requests(request: Request, who: VisitorHere) -> Response:
    """A page of them, the latest first."""
    filters = filters_of(who, dict(request.query_params))
    deep = request.query_params.get("deep") == "1"
    before = request.query_params.get("before", "")
    asked = {**filters.asked(who.types), "before": before or None}
    search = partial(journal_of(who).search, asked, deep=deep)
    found, problem = None, ""
    try:
        found = await (unless_gone(request, search()) if deep else search())
    except TookTooLong as error:
        problem = str(error)
    except ValueError:
        raise invalid("before: this is no place in the list") from None
    running, unheard = await running_of(who, filters)
    return page(
        request,
        who,
        "requests.html",
        title="Requests",
        filters=filters,
        found=found,
        problem=problem,
        deep=deep,
        before=before,
        seconds=DEEP_SEARCH if deep else SEARCH,
        states=IN_JOURNAL,
        running=running,
        unheard=unheard,
    )


@router.get(f"{UI}/requests/{{id:name}}")
async def one(request: Request, id: Name, who: VisitorHere) -> Response:
    """All of one."""
    named("the request id", id)
    row = await journal_of(who).request(id, who.types)
    running, unheard = await _running(who)
    at_work = [one for one in running if one["request_id"] == id]
    if row is not None and row["state"] in FINAL:
        at_work = []  # what instances told of themselves is older
    status = None
    if row is None:
        status = await who.parts.statuses.one(id)
        kind = at_work[0]["type"] if at_work else None if status is None else status.type
        if (status is None and not at_work) or not who.caller.may_see(kind):
            raise unknown(id)
    elif not who.caller.may_see(row["type"]):
        raise unknown(id)
    return await in_thread(
        lambda: page(
            request, who, "request.html", title=id, id=id, row=row, status=status,
            at_work=at_work, unheard=unheard, said="" if status is None else standing(status),
            **_details(who, row),
        )
    )  # fmt: skip


def journal_of(who: Visitor) -> PageJournal:
    """The journal that is looked at. Raises HttpProblem where none is configured."""
    if who.pages.journal is None:
        raise HttpProblem(501, "not_configured", "this gateway has no journal: set database_url")
    return who.pages.journal


def filters_of(who: Visitor, given: dict[str, str]) -> RequestFilters:
    """What is looked for. Raises HttpProblem."""
    try:
        filters = RequestFilters(given)
    except FilterRefused as error:
        raise invalid(str(error)) from None
    if filters["text"] and not who.may_operate:
        # Else somebody could try out what hidden fields hold.
        raise HttpProblem(403, "forbidden", "to look for texts needs an API key that may operate")
    return filters


async def running_of(who: Visitor, filters: RequestFilters) -> tuple[list[Row], str]:
    """What runs right now and matches, where that was asked for; why it is not known."""
    if filters["state"] != "running":
        return [], ""
    running, unheard = await _running(who)
    return [
        row
        for row in running
        if all(
            not filters[name] or matches(row[column], filters[name])
            for name, column in (("type", "type"), ("id", "request_id"))
        )
    ], unheard


async def _running(who: Visitor) -> tuple[list[Row], str]:
    found = await who.pages.services.running()
    if found.value is None:
        return [], found.problem
    return [row for row in found.value if who.caller.may_see(row["type"])], ""


def _details(who: Visitor, row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"lines": [], "payload": None, "result": None, "headers": [], "trace": ""}
    settings = who.parts.settings
    view = PayloadView(settings.gateway_masked_fields)
    headers = readable_headers(row["headers"])
    parent = dict(headers).get("traceparent") or b""
    trace = trace_id(parent.decode("ascii", "replace"))
    if trace and settings.gateway_trace_url:
        trace = settings.gateway_trace_url.replace("{trace_id}", trace)
    return {
        "lines": timeline(row, datetime.now(UTC)),
        "origin": origin(row),
        "payload": view.payload(row["payload"]),
        "result": None if row["result"] is None else view.value(row["result"]),
        "headers": view.headers(headers),
        "trace": trace,
    }
