"""All pages, and what is answered to people instead of a problem document."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.responses import Response

from consumer.gateway.pages import (
    entry,
    letter_pages,
    limits_page,
    other_pages,
    overview_page,
    request_moves,
    request_pages,
    schedules_page,
)
from consumer.gateway.pages.frame import is_page, login_needed, problem_page
from consumer.gateway.pages.visitor import LoginNeeded
from consumer.gateway.problems import HttpProblem

_MODULES = (
    entry, overview_page, request_moves, request_pages, letter_pages, limits_page, schedules_page,
    other_pages,
)  # fmt: skip


def add_pages(app: FastAPI) -> None:
    """Gives an application the pages."""
    for module in _MODULES:
        app.include_router(module.router)
    app.add_exception_handler(LoginNeeded, _to_login)


def answered(request: Request, problem: HttpProblem) -> Response:
    """A problem, as a page where a page was wanted."""
    return problem_page(request, problem) if is_page(request) else problem.response()


async def _to_login(request: Request, _: Exception) -> Response:
    return await login_needed(request)
