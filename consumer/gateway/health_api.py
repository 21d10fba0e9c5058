"""Whether this process lives, and whether it can take requests."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from consumer.gateway.calls import json_response, parts_here
from consumer.gateway.openapi import HEALTH
from consumer.gateway.problems import HttpProblem

router = APIRouter(tags=["health"])


@router.get("/livez", **HEALTH)
async def livez() -> Response:
    """Whether the event loop goes on: answered at all is yes."""
    return PlainTextResponse("ok\n")


@router.get("/readyz", **HEALTH)
async def readyz(request: Request, verbose: str | None = None) -> Response:
    """Whether requests can be taken; `?verbose` lists what was looked at.

    What is wrong with it is told to API keys with the role `read`.
    """
    parts = parts_here(request)
    found = await parts.readiness.look()
    ok = all(one.ok for one in found if one.needed)
    if verbose is None:
        return PlainTextResponse("ok\n" if ok else "failed\n", 200 if ok else 503)
    details = True
    try:
        parts.access.caller(request.headers.getlist("authorization")).need("read")
    except HttpProblem:
        details = False
    rows = [
        {
            "name": one.name,
            "ok": one.ok,
            "needed": one.needed,
            "detail": one.detail if details else "",
        }
        for one in found
    ]
    return json_response({"ok": ok, "checks": rows}, 200 if ok else 503)
