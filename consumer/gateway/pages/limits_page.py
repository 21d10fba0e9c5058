"""Limits: looked at and changed; types paused and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.gateway.calls import named
from consumer.gateway.limits_board import LimitsBoard, LimitsSeen
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.visitor import UI, Form, FormHere, Visitor, VisitorHere, why_of
from consumer.gateway.problems import HttpProblem, invalid
from feedback.errors import InvalidLimit
from feedback.operations.request_actions import By
from processing.cluster.limits import Figure, Setting, most_of

router = APIRouter(include_in_schema=False)

OF_TYPE: Final[tuple[Figure, ...]] = ("total", "instance")
OF_ALL: Final[tuple[Figure, ...]] = ("workers", "workers_total")


@router.get(f"{UI}/limits")
async def limits(request: Request, who: VisitorHere) -> Response:
    """What holds now."""
    return _shown(request, who, await _board(who).look())


@router.post(f"{UI}/limits")
async def change(request: Request, sent: FormHere) -> Response:
    """Sets limits, pauses or resumes."""
    who, form = sent
    changes = _changes(who, form)
    if not changes:
        seen = await _board(who).look()
        return _shown(request, who, replace(seen, said=("nothing was changed",)))
    try:
        seen = await _board(who).change(changes, By(f"gateway:{who.caller.name}", why_of(form)))
    except InvalidLimit as error:
        raise invalid(str(error)) from None
    who.pages.services.forget()
    return _shown(request, who, seen)


def _changes(who: Visitor, form: Form) -> dict[Setting, int | None]:
    kind = form.one("type")
    action = form.one("action")
    if action == "all":
        if not who.caller.sees_all:
            raise HttpProblem(403, "forbidden", "this API key is for some types only")
        return _figures(form, OF_ALL)
    named("the type", kind)
    who.caller.need_type(kind)
    if action == "pause":
        return {Setting("paused", kind): 1}
    if action == "resume":
        return {Setting("paused", kind): None}
    if action == "set":
        return _figures(form, OF_TYPE, kind)
    raise invalid("action: one of set, pause, resume, all")


def _figures(
    form: Form, names: Sequence[Figure], kind: str | None = None
) -> dict[Setting, int | None]:
    """Those that differ from what the page had shown: somebody may have set the others since."""
    return {
        Setting(name, kind): _figure(name, text)
        for name in names
        if (text := form.one(name)) != form.one(f"seen_{name}")
    }


def _figure(name: Figure, text: str) -> int | None:
    """An empty field is no limit."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise invalid(f"{name}: a whole number from 1 to {most_of(name)}, or nothing for no limit")
    return int(text)


def _shown(request: Request, who: Visitor, seen: LimitsSeen) -> Response:
    limited = {row["type"]: row for row in seen.limits["types"]}
    rows = [
        limited.get(kind, {"type": kind, "total": None, "instance": None, "paused": False,
                           "at_once": {}})
        for kind in sorted({*limited, *seen.types})
        if who.caller.may_see(kind)
    ]  # fmt: skip
    return page(request, who, "limits.html", title="Limits", limits=seen.limits, rows=rows,
                said=seen.said)  # fmt: skip


def _board(who: Visitor) -> LimitsBoard:
    if who.pages.limits is None:
        raise HttpProblem(501, "not_configured", "limits are kept in Redis: set redis_url")
    return who.pages.limits
