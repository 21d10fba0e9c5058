"""The way in and out of the pages, and the files that they refer to."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.gateway.pages.frame import HEADERS, STATIC, page, see_other, static_file
from consumer.gateway.pages.sessions import COOKIE
from consumer.gateway.pages.visitor import UI, PlainFormHere, form_of, own_path, pages_of, root_of
from consumer.gateway.problems import HttpProblem
from processing.logs import get_logger

router = APIRouter(include_in_schema=False)
log = get_logger("oncepool.gateway")


@router.get("/")
@router.get(UI)
async def start(request: Request) -> Response:
    """Leads to the overview."""
    pages_of(request)
    return see_other(f"{root_of(request)}{UI}/")


@router.get(f"{UI}/login")
async def login(request: Request) -> Response:
    """Asks for an API key."""
    if not pages_of(request).sessions.wanted:
        return see_other(f"{root_of(request)}{UI}/")
    place = own_path(request.query_params.get("next", "")) or "/"
    return page(request, None, "login.html", title="Log in", place=place, wrong="",
                undone=request.query_params.get("undone") == "1")  # fmt: skip


@router.post(f"{UI}/login")
async def logged_in(request: Request) -> Response:
    """Takes an API key, and leads to where somebody wanted to go."""
    sessions = pages_of(request).sessions
    form = await form_of(request)
    place = own_path(form.one("next")) or "/"
    token = form.one("key")
    try:
        caller, cookie = sessions.login(token)
        caller.need("read")
    except HttpProblem as problem:
        log.warning("login refused", reason=problem.detail)
        answer = page(request, None, "login.html", problem.status_code, title="Log in",
                      place=place, wrong=problem.detail, undone=False)  # fmt: skip
        answer.headers.update(problem.headers or {})
        return answer
    log.info("logged in", who=caller.name)
    answer = see_other(f"{root_of(request)}{UI}{place}")
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=round(sessions.seconds),
        path=f"{root_of(request)}{UI}",
        secure=_encrypted(request),
        httponly=True,
        samesite="strict",
    )
    return answer


@router.post(f"{UI}/logout")
async def logout(request: Request, sent: PlainFormHere) -> Response:
    """Takes the cookie back."""
    who, _ = sent
    log.info("logged out", who=who.caller.name)
    answer = see_other(f"{root_of(request)}{UI}/login")
    answer.delete_cookie(COOKIE, path=f"{root_of(request)}{UI}")
    return answer


@router.get(f"{UI}/static/{{name}}")
async def static(request: Request, name: str) -> Response:
    """One of the files."""
    pages_of(request)
    if name not in STATIC:
        raise HttpProblem(404, "not_found", "there is no such file")
    headers = HEADERS | {"Cache-Control": "public, max-age=86400"}
    return Response(static_file(name), 200, headers, STATIC[name])


def _encrypted(request: Request) -> bool:
    """Whether the browser came by TLS, perhaps up to a proxy."""
    first, _, _ = request.headers.get("x-forwarded-proto", "").partition(",")
    return "https" in (request.url.scheme, first.strip().lower())
