"""The gateway as an ASGI application, by itself or mounted in another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from consumer.config.settings import Settings
from consumer.gateway import dead_letter_api, health_api, metrics_api, operator_api, requests_api
from consumer.gateway.events import SILENT, GatewayEvents
from consumer.gateway.guard import Guard
from consumer.gateway.methods import HeadAsGet, allowed
from consumer.gateway.openapi import document
from consumer.gateway.pages.routes import add_pages, answered
from consumer.gateway.parts import GatewayParts, parts_of
from consumer.gateway.problems import HttpProblem, gone, invalid, problem_of
from consumer.gateway.submission import said_to_be_a_form
from feedback.errors import OncepoolError
from feedback.tracing.switch import TRACING

DESCRIPTION: Final = """\
Requests that must not run twice, over HTTP: send them with an `Idempotency-Key`, ask for their
status, and look after those that failed. Errors are problem documents (RFC 9457).
"""
# An application that it is mounted in has its own: here nothing is sent anywhere unasked.
_NO_TELEMETRY: Final[Any] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
METHOD_NOT_ALLOWED: Final = 405
_CODES: Final = {404: "not_found", METHOD_NOT_ALLOWED: "method_not_allowed", 413: "too_large"}


def create_app(
    settings: Settings, *, events: GatewayEvents = SILENT, parts: GatewayParts | None = None
) -> FastAPI:
    """The application. Mounted in another, its `lifespan()` belongs into that one's.

    `events` hears of each answer. Raises ConfigError where a setting is missing.
    """
    TRACING.turn(on=settings.tracing)
    made = parts or parts_of(settings, events)
    app = _Gateway(
        title="Oncepool gateway",
        version=version("oncepool"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
    )
    app.state.parts = made
    for module in (requests_api, operator_api, dead_letter_api, health_api, metrics_api):
        # As its own: in a router that is included FastAPI looks for the route twice, each time.
        app.router.routes.extend(module.router.routes)
    if made.pages is not None:
        add_pages(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(
        Guard,
        most_bytes=settings.max_payload,
        seconds=settings.gateway_client_timeout,
        local=made.access.open,
        events=made.listeners,
        stopping=made.statuses.stopping,
    )
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Ends the threads and connections of the gateway at the end."""
    try:
        yield
    finally:
        parts: GatewayParts = app.state.parts
        await parts.close()


class _Gateway(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = document(self)
        return self.openapi_schema


async def _of_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)  # noqa: S101  (registered for it)
    return answered(request, error)


async def _of_framework(request: Request, error: Exception) -> Response:
    """What the framework says of paths and methods."""
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for it)
    if isinstance(error, HttpProblem):
        return answered(request, error)
    code = _CODES.get(error.status_code, "invalid_request")
    headers = dict(error.headers or {})
    if error.status_code == METHOD_NOT_ALLOWED and (methods := allowed(request)):
        headers["Allow"] = methods  # the framework knows those of one route
    return answered(
        request, HttpProblem(error.status_code, code, str(error.detail), headers=headers)
    )


async def _of_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  (registered for it)
    said = [
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in error.errors()[:10]
    ]
    if form := said_to_be_a_form(request.headers.get("content-type", "")):
        said.append(form)
    return answered(request, invalid("; ".join(said)))


async def _of_ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, OncepoolError)  # noqa: S101  (registered for it)
    return answered(request, problem_of(error))


async def _of_gone(_: Request, error: Exception) -> Response:
    """In the middle of the body."""
    del error
    return gone().response()


async def _of_any(request: Request, error: Exception) -> Response:
    del error  # logged by the server
    return answered(request, HttpProblem(500, "error", "the gateway's log says what it was"))


_HANDLERS: Final[dict[type[Exception], Callable[[Request, Exception], Any]]] = {
    HttpProblem: _of_problem,
    HTTPException: _of_framework,
    RequestValidationError: _of_parameters,
    OncepoolError: _of_ours,
    ClientDisconnect: _of_gone,
    Exception: _of_any,
}
