"""What operators do with requests: asked first, with how many there are, and then done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, get_args

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.gateway.bulk_moves import MOVES_FROM, BulkAction, BulkMover, BulkOutcome, Ending
from consumer.gateway.calls import named
from consumer.gateway.pages.filters import RequestFilters
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import MOST_CHOSEN
from consumer.gateway.pages.request_pages import filters_of, journal_of
from consumer.gateway.pages.visitor import UI, Form, FormHere, Visitor, why_of
from consumer.gateway.problems import HttpProblem, invalid
from feedback.contract.payloads import parse_json, write_json
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By, ResultRefused
from feedback.operations.request_reads import Row

router = APIRouter(include_in_schema=False)

WORDS: Final[dict[BulkAction, str]] = {
    "retry": "Run again",
    "cancel": "Cancel",
    "drop": "Drop",
    "done": "Resolve as done",
    "failed": "Resolve as failed",
    "again": "Resolve: it did not happen, run again",
}
WAIT: Final = 20.0
"""Seconds for those that run to come to their end."""


@router.post(f"{UI}/requests/ask")
async def ask(request: Request, sent: FormHere) -> Response:
    """Says how many it is about, and asks why."""
    who, form = sent
    action = _action(form)
    filters = _filters(who, form)
    ids = await _ids(who, form, action, filters)
    return _asked(request, who, action, ids, filters, form.one("back"))


@router.post(f"{UI}/requests/do")
async def do(request: Request, sent: FormHere) -> Response:
    """Does it, unless there are others by now than were asked about."""
    who, form = sent
    action = _action(form)
    filters = _filters(who, form)
    ids = await _ids(who, form, action, filters)
    if filters is not None and str(len(ids)) != form.one("count"):
        return _asked(request, who, action, ids, filters, form.one("back"), changed=True)
    by = By(f"gateway:{who.caller.name}", why_of(form))
    outcome = await _move(who, action, ids, by, form.one("result"), selected=filters is None)
    who.pages.services.forget()
    return page(
        request, who, "moved.html", title=WORDS[action], outcome=outcome, back=form.one("back"),
        shown=100,
    )  # fmt: skip


def _asked(
    request: Request,
    who: Visitor,
    action: BulkAction,
    ids: list[str],
    filters: RequestFilters | None,
    back: str,
    *,
    changed: bool = False,
) -> Response:
    more = len(ids) > MOST_CHOSEN
    return page(
        request,
        who,
        "ask.html",
        title=WORDS[action],
        action=action,
        where="/requests/do",
        verb=WORDS[action],
        n=min(len(ids), MOST_CHOSEN),
        count=len(ids),
        more=more,
        names=ids[:20],
        fields=[("ids", one) for one in ids] if filters is None else [
            ("all", "1"), *filters.values.items()],
        filters=filters,
        back=back,
        changed=changed,
        result=action == "done" and len(ids) == 1,
    )  # fmt: skip


def _action(form: Form) -> BulkAction:
    action = form.one("action")
    if action not in get_args(BulkAction):
        raise invalid(f"action: one of {', '.join(get_args(BulkAction))}")
    return cast("BulkAction", action)


def _filters(who: Visitor, form: Form) -> RequestFilters | None:
    """What all are to be moved that match; None where they are named one by one."""
    if form.one("all") != "1":
        return None
    names = ("state", "type", "id", "key", "reference", "code", "since", "until", "text")
    filters = filters_of(who, {name: form.one(name) for name in names})
    if not filters:
        raise invalid("name what is to be moved: without filters it would be all there is")
    return filters


async def _ids(
    who: Visitor, form: Form, action: BulkAction, filters: RequestFilters | None
) -> list[str]:
    """Those that it is about. Raises HttpProblem where there is none."""
    journal = journal_of(who)
    if filters is None:
        ids = form.all("ids")
        if not ids:
            raise invalid("nothing is chosen: tick requests, or take all that match")
        for one in ids:
            named("the request id", one)
        if not who.caller.sees_all:
            known = await who.parts.statuses.read(ids)
            for one, status in zip(ids, known, strict=True):
                who.caller.need_own(one, "" if status is None else status.type)
        return ids
    allowed = MOVES_FROM[action]
    if filters["state"] and filters["state"] not in allowed:
        raise HttpProblem(
            409, "refused", f"{WORDS[action]} is for requests that are {' or '.join(allowed)}, and"
            f" the filter says {filters['state']}"
        )  # fmt: skip
    if not filters["state"] and len(allowed) > 1:
        raise invalid(f"name a state in the filter: {', '.join(allowed)}")
    asked = {**filters.asked(who.types), "state": filters["state"] or allowed[0]}
    return sorted(await journal.chosen(asked))


async def _move(
    who: Visitor, action: BulkAction, ids: Sequence[str], by: By, result: str, *, selected: bool
) -> BulkOutcome:
    mover: BulkMover | None = who.pages.mover
    if mover is None or who.parts.operator is None:
        raise HttpProblem(501, "not_configured", "this gateway has no journal: set database_url")
    if result and action == "done" and len(ids) == 1:
        try:
            value = write_json(parse_json(result.encode()))
            answer = await who.parts.operator.resolve(ids[0], "done", by, value)
        except (ValueError, ResultRefused) as error:
            raise invalid(f"the result: {error}") from None
        rows: list[Row] = [] if answer.row is None else [answer.row]
        refused: list[Refusal] = [] if answer.refusal is None else [answer.refusal]
        return BulkOutcome(rows, refused)
    ending = Ending(WAIT) if selected else None
    return await mover.move(action, list(ids)[:MOST_CHOSEN], by, ending)
