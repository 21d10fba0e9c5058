"""Answers that may be large: what they take is given back when their clients have taken them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from consumer.gateway.calls import JSON, unless_gone

Make: TypeAlias = Callable[[AsyncExitStack], Coroutine[Any, Any, bytes]]
"""Makes the JSON. What it enters is left once the client has taken the answer, or has gone."""


class LargeAnswer(Response):
    """Is made when it is sent, so that what it takes is held for as long as its body is."""

    media_type = JSON

    def __init__(self, request: Request, make: Make) -> None:
        super().__init__()
        self._request = request
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        async with AsyncExitStack() as held:
            body = await unless_gone(self._request, self._make(held))
            self.headers["content-length"] = str(len(body))
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": body, "more_body": True})
            # Servers take this one once the client has taken what was sent before.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
