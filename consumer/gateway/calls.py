"""What all calls have in common: who calls, what is answered, and a client that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from consumer.admin.plain_json import to_json
from consumer.gateway.access import Caller
from consumer.gateway.parts import GatewayParts
from consumer.gateway.path_names import in_path, root_in_url
from consumer.gateway.problems import gone, invalid
from consumer.gateway.race import unless
from feedback.contract.headers import check_name
from feedback.contract.states import State
from feedback.errors import Malformed
from feedback.status.status import Status

T = TypeVar("T")
JSON = "application/json"
LONGEST_RETRY = 60.0
NOT_LONG = 0.1
"""Seconds in which nearly all calls are answered that do not wait."""


def parts_here(request: Request) -> GatewayParts:
    """The parts of the application that was called."""
    parts: GatewayParts = request.app.state.parts
    return parts


class KeyedRoute(APIRoute):
    """A route for callers with an API key, which is looked at before any of the body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def known(request: Request) -> Response:
            given = request.headers.getlist("authorization")
            request.state.caller = parts_here(request).access.caller(given)
            return await handle(request)

        return known


async def identified(request: Request) -> Caller:
    """Who calls a KeyedRoute."""
    caller: Caller = request.state.caller
    return caller


Id = Annotated[str, Path(min_length=1, max_length=200, examples=["order-17"])]
Type = Annotated[str, Path(min_length=1, max_length=200, examples=["payment.create"])]
CallerHere = Annotated[Caller, Depends(identified)]


def named(what: str, name: str) -> str:
    """An id, or a type. Raises HttpProblem for what is none."""
    try:
        return check_name(what, name)
    except Malformed as error:
        raise invalid(str(error)) from None


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    body = value if isinstance(value, bytes) else to_json(value)
    return Response(body, status, headers, JSON)


def retry_headers(status: Status) -> dict[str, str]:
    """When to ask again for one that is not settled."""
    if status.settled:
        return {}
    seconds = 1.0
    if status.state is State.WAITING and status.retry_at is not None:
        left = (status.retry_at - status.at.now(status.at.tzinfo)).total_seconds()
        seconds = min(max(left, 1.0), LONGEST_RETRY)
    return {"Retry-After": str(round(seconds))}


def location(request: Request, id: str) -> str:
    """Where the status of a request is."""
    root = root_in_url(request.scope.get("root_path", ""))
    return f"{root}/requests/{in_path(id)}"


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What it returns; it is given up when the client goes away.

    That is looked for where it takes longer than most: the look costs as much as a status' read.
    """
    task = asyncio.ensure_future(work)
    try:
        if (await asyncio.wait({task}, timeout=NOT_LONG))[0]:
            return task.result()
    except asyncio.CancelledError:
        task.cancel()
        raise
    return await unless(task, _gone(request), gone())


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
