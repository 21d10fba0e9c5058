"""What was answered, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.gateway.calls import CallerHere, KeyedRoute, parts_here
from consumer.gateway.openapi import METRICS
from consumer.gateway.problems import HttpProblem
from feedback.metrics.exposition import CONTENT_TYPE, MISSING, exposition

router = APIRouter(tags=["health"], route_class=KeyedRoute)


@router.get("/metrics", **METRICS)
async def metrics(request: Request, caller: CallerHere) -> Response:
    """Calls by route, method and status, and what they took. For the role `read`."""
    caller.need("read")
    told = parts_here(request).metrics
    if told is None:
        raise HttpProblem(501, "not_configured", MISSING.strip())
    return Response(exposition(told.families()), media_type=CONTENT_TYPE)
