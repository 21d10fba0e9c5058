"""Pages as answers: templates, what they may ask for, and the headers that go with them."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import RedirectResponse, Response

from consumer.gateway.pages import words
from consumer.gateway.pages.visitor import (
    FRAGMENT,
    UI,
    Visitor,
    back_of,
    form_page,
    known_visitor,
    login_path,
    place_of,
    root_of,
)
from consumer.gateway.path_names import in_path
from consumer.gateway.problems import RETRY_AFTER, TITLES, HttpProblem

HTML: Final = "text/html; charset=utf-8"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    # Without a referrer a browser does not say either which site a form comes from.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
STATIC: Final = {
    "pages.css": "text/css; charset=utf-8",
    "pages.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""Files that pages refer to."""
NAVIGATION: Final = (
    ("/", "Overview"),
    ("/requests", "Requests"),
    ("/dead-letters", "Dead letters"),
    ("/limits", "Limits"),
    ("/schedules", "Schedules"),
    ("/oddities", "Oddities"),
    ("/audit", "Audit"),
)


def static_file(name: str) -> bytes:
    """One of STATIC."""
    return (files("consumer.gateway.pages") / "static" / name).read_bytes()


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("consumer.gateway.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "count": words.count,
        "figure": words.figure,
        "age": words.age,
        "when": words.when,
        "moment": words.moment,
        "in_path": in_path,
    }
    version = sha256(b"".join(map(static_file, STATIC))).hexdigest()[:12]
    made.globals |= {"navigation": NAVIGATION, "version": version, "nothing": words.NOTHING}
    return made


_templates: Final = _environment()


def page(
    request: Request, who: Visitor | None, template: str, code: int = 200, **context: Any
) -> Response:
    """A page, or what is in its frame where its script asks for it."""
    fragment = FRAGMENT in request.headers
    now = datetime.now(UTC)
    text = _templates.get_template(template).render(
        layout="fragment.html" if fragment else "frame.html",
        who=who,
        root=f"{root_of(request)}{UI}",
        here=_here(request),
        now=now,
        ago=lambda at: words.since(at, now),
        **context,
    )
    headers = HEADERS | {"Vary": f"Cookie, {FRAGMENT}"}
    if code == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER)
    return Response(text, code, headers, HTML)


def problem_page(request: Request, problem: HttpProblem) -> Response:
    """What went wrong, for people."""
    title = TITLES[problem.code]
    answer = page(
        request, known_visitor(request), "problem.html", problem.status_code, title=title,
        problem=problem, back=back_of(request),
    )  # fmt: skip
    answer.headers.update(problem.headers or {})
    return answer


async def login_needed(request: Request) -> Response:
    """Leads whoever is not known to the login, and back; of a form to the page that it was on."""
    if FRAGMENT in request.headers:
        return Response("log in", 401, HEADERS, "text/plain")
    if request.method != "GET":
        return see_other(login_path(request, await form_page(request), undone=True))
    site = request.headers.get("sec-fetch-site", "")
    if site in ("cross-site", "same-site"):
        # A link of another site: the browser has kept the cookie back, and sends it from here.
        return page(request, None, "onward.html", place=place_of(request), title="Onward")
    return see_other(login_path(request, place_of(request)))


def see_other(place: str) -> Response:
    """Another page is to be looked at."""
    return RedirectResponse(place, 303, HEADERS)


def is_page(request: Request) -> bool:
    """Whether people see what is answered."""
    path = request.scope["path"].removeprefix(root_of(request))
    return bool(path == UI or path.startswith(f"{UI}/"))


def _here(request: Request) -> str:
    """The path of the page, below /ui."""
    return str(request.scope["path"]).removeprefix(root_of(request)).removeprefix(UI) or "/"
