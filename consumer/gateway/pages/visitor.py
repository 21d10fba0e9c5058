"""Who looks at a page, and what he sent with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from consumer.config.gateway_keys import GatewayRole
from consumer.gateway.access import Caller
from consumer.gateway.calls import parts_here
from consumer.gateway.pages.sessions import COOKIE
from consumer.gateway.parts import GatewayParts, PageParts
from consumer.gateway.path_names import root_in_url
from consumer.gateway.problems import HttpProblem, invalid

UI: Final = "/ui"
FRAGMENT: Final = "x-oncepool-fragment"
"""Header of what the script of a page asks for: a part of the page."""
MOST_TICKED: Final = 500
"""Requests, or dead letters, that a form may name one by one."""
MOST_FIELDS: Final = MOST_TICKED + 50
LONGEST_WHY: Final = 1000
BACK: Final = "oncepool_back"
"""Where a request keeps what its form says of the page that it was on."""
_ONLY_SENT: Final = ("/ask", "/do", "/login", "/logout")
"""Ends of paths that lead nowhere by themselves."""


class LoginNeeded(Exception):
    """Nobody is known by the cookie of this request."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who may look."""

    caller: Caller
    parts: GatewayParts
    pages: PageParts
    token: str
    """Of his forms."""
    logged_in: bool

    @property
    def may_operate(self) -> bool:
        """Whether he may change anything."""
        return "operate" in self.caller.roles

    @property
    def types(self) -> list[str] | None:
        """The types that he may see; None: all."""
        return None if self.caller.sees_all else list(self.caller.types)


class Form:
    """The fields of a form, some of them more than once."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def one(self, name: str) -> str:
        """The field of this name, "" where there is none."""
        return next((value for key, value in self._fields if key == name), "").strip()

    def all(self, name: str) -> list[str]:
        """All fields of this name, in their order, each value once."""
        return list(dict.fromkeys(value for key, value in self._fields if key == name))


def why_of(form: Form) -> str | None:
    """Why somebody does something, where he says it. Raises HttpProblem."""
    why = form.one("why")
    if len(why) > LONGEST_WHY:
        raise invalid(f"why: at most {LONGEST_WHY} characters")
    return why or None


def pages_of(request: Request) -> PageParts:
    """What the pages are made of. Raises HttpProblem where there are none."""
    pages = parts_here(request).pages
    if pages is None:
        raise HttpProblem(404, "not_found", "this gateway has no pages: see gateway_pages")
    return pages


def visitor(request: Request) -> Visitor:
    """Who it is. Raises LoginNeeded, and HttpProblem where he may not look."""
    return _seen(request, "read")


async def operating(request: Request) -> tuple[Visitor, Form]:
    """Who changes something, and his form. Raises as visitor(), and for a form of another page."""
    return await _sent(request, "operate")


async def sending(request: Request) -> tuple[Visitor, Form]:
    """The same, of what everybody may do."""
    return await _sent(request, "read")


async def _sent(request: Request, role: GatewayRole) -> tuple[Visitor, Form]:
    who = _seen(request, role)
    form = await form_of(request)
    if not pages_of(request).sessions.is_form_token(request.cookies.get(COOKIE), form.one("token")):
        raise HttpProblem(
            403, "forbidden", "this form is of another login, or too old: open the page anew"
        )
    return who, form


async def form_of(request: Request) -> Form:
    """The fields of an HTML form. Raises HttpProblem."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HttpProblem(415, "unsupported_media_type", "pages send forms, and take only those")
    body = await request.body()
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError:
        raise invalid("the form can't be read, or has too many fields") from None
    if any("\0" in text for pair in fields for text in pair):
        raise invalid("the form holds a zero byte")
    form = Form(fields)
    setattr(request.state, BACK, form.one("back"))
    return form


def root_of(request: Request) -> str:
    """Before each path of ours: where this is mounted, and what a proxy takes off."""
    return root_in_url(request.scope.get("root_path", ""))


def own_path(path: str) -> str:
    """A path to go on to: one below /ui, "" where it is anything else."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return ""
    if parts.scheme or parts.netloc or not path.startswith("/") or "\\" in path:
        return ""
    if path.startswith("//") or any(ord(one) < 33 for one in path):
        return ""
    return path


def place_of(request: Request) -> str:
    """The page that was asked for, below /ui, as it stands in the URL."""
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    raw = raw.partition(b"?")[0]  # some hosts have the query in it
    here = raw.decode("latin-1").removeprefix(root_of(request)).removeprefix(UI) or "/"
    # As it stands: of a path with a `?` in it, decoded, `request.url` has all behind that.
    query = request.scope["query_string"].decode("latin-1")
    return f"{here}?{query}" if query else here


def login_path(request: Request, place: str, *, undone: bool = False) -> str:
    """Where to log in, and to go on to this page. `undone`: a form was sent, and nothing done."""
    said = "&undone=1" if undone else ""
    return f"{root_of(request)}{UI}/login?next={quote(place, safe='')}{said}"


async def form_page(request: Request) -> str:
    """The page that a form was on which nothing has read yet, as back_of() has it."""
    with suppress(HttpProblem, ClientDisconnect):
        await form_of(request)
    return back_of(request)


def back_of(request: Request) -> str:
    """The page, below /ui, that a form was on or a link; "" where that is not known."""
    return own_path(getattr(request.state, BACK, "")) or _referring(request)


def known_visitor(request: Request) -> Visitor | None:
    """Who it is, whatever he may, for a page that says what went wrong; None: nobody known."""
    pages = parts_here(request).pages
    caller = None if pages is None else pages.sessions.known(request.cookies.get(COOKIE))
    return None if pages is None or caller is None else _visitor(request, pages, caller)


def _referring(request: Request) -> str:
    """The page of ours that a browser says led here, unless it can't be looked at again."""
    try:
        parts = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    front = f"{root_of(request)}{UI}"
    path = parts.path.removeprefix(front)
    if not parts.path.startswith(f"{front}/") or path.endswith(_ONLY_SENT):
        return ""
    return own_path(f"{path}?{parts.query}" if parts.query else path)


def _seen(request: Request, role: GatewayRole) -> Visitor:
    pages = pages_of(request)
    caller = pages.sessions.caller(request.cookies.get(COOKIE))
    if caller is None:
        raise LoginNeeded
    caller.need(role)
    return _visitor(request, pages, caller)


def _visitor(request: Request, pages: PageParts, caller: Caller) -> Visitor:
    return Visitor(
        caller,
        parts_here(request),
        pages,
        pages.sessions.form_token(request.cookies.get(COOKIE)),
        logged_in=pages.sessions.wanted,
    )


VisitorHere = Annotated[Visitor, Depends(visitor)]
FormHere = Annotated[tuple[Visitor, Form], Depends(operating)]
PlainFormHere = Annotated[tuple[Visitor, Form], Depends(sending)]
