"""Methods of HTTP: HEAD beside each GET, and what a path allows."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from fastapi import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class HeadAsGet:
    """Answers HEAD as GET, without the body (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, receive, send_head)
        finally:
            # Who called this reads there which route was found.
            scope.update({**as_get, "method": "HEAD"})


def allowed(request: Request) -> str:
    """The methods of its path, for the header Allow; empty where there is no such path."""
    routes = request.app.router.routes
    found = [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    ]
    if "GET" in found:
        found.insert(1, "HEAD")
    return ", ".join(found)
