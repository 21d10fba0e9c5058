"""What stands before every call: sizes, time, other sites' pages, and headers of the answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumer.gateway.events import GatewayEvents
from consumer.gateway.path_names import routed_below
from consumer.gateway.problems import HttpProblem, invalid, unavailable

MOST_HEADERS: Final = 64 * 1024
"""Bytes of all headers and of the path."""
REQUEST_ID: Final = "oncepool.request_id"
"""Where a call's scope has the id that it sends under."""
STOPPING: Final = "this gateway is stopping, and did not come to an end with it in time: ask again"
_MOST_DIGITS: Final = 18
"""Of a length."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PROXIED: Final = re.compile(
    rb"via|forwarded|x-forwarded-.+|x-real-ip|x-client-ip|true-client-ip|cf-connecting-ip"
)
"""Names of headers that proxies add."""

SECURITY: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
"""Headers of every answer that does not say otherwise."""


def is_loopback(host: str) -> bool:
    """Whether only programs of the same machine reach this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Around the gateway, whichever server and application it is mounted in."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        most_bytes: int,
        seconds: float,
        local: bool,
        events: GatewayEvents,
        stopping: Callable[[], bool],
    ) -> None:
        """`most_bytes` of a body, in at most so many `seconds`; `local`: there are no API keys.

        `stopping`: whether the gateway has been asked to end.
        """
        self._app = app
        self._most = most_bytes
        self._seconds = seconds
        self._local = local
        self._events = events
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status, routed, begun = 500, scope, False

        async def answer(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message = {**message, "headers": _with_security(message["headers"])}
            await send(message)

        try:
            try:
                self._check(scope)
                body = _Body(receive, self._most, self._seconds)
                routed = _routed(_plain_cookies(scope))
                await self._app(routed, body.receive, answer)
            except HttpProblem as problem:
                await problem.response()(scope, receive, answer)
        except asyncio.CancelledError:
            # At its end the server's own answer is in plain text; any other time it is for whoever
            # has cancelled the call to answer.
            if not begun and self._stopping():
                await _stopping(routed).response()(scope, receive, answer)
            raise
        finally:
            route = getattr(routed.get("route"), "path_format", "")
            self._events.answered(route, scope["method"], status, time.monotonic() - started)

    def _check(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if size + len(scope["path"]) + len(scope["query_string"]) > MOST_HEADERS:
            raise HttpProblem(
                431, "too_large", f"path and headers have more than {MOST_HEADERS} bytes"
            )
        if self._local:
            _check_local(scope, headers)
        _check_query(scope["query_string"])
        if scope["method"] not in SAFE:
            _check_site(headers)
            _check_content(headers)
        if _length(scope) > self._most:
            raise _too_large(self._most)


def _stopping(scope: Scope) -> HttpProblem:
    named = scope.get(REQUEST_ID) or scope.get("path_params", {}).get("id")
    return unavailable(STOPPING) if named is None else unavailable(STOPPING, id=named)


class _Body:
    """What the client sends, within its bounds, whatever its headers say of it."""

    def __init__(self, receive: Receive, most_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._most = most_bytes
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._taken = 0
        self._whole = False

    async def receive(self) -> Message:
        """The next message. Raises HttpProblem where the body is too long, or late."""
        if self._whole:
            return await self._receive()  # of the client's going away
        try:
            async with asyncio.timeout(self._end - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise HttpProblem(
                408,
                "timeout",
                f"the body did not arrive within {self._seconds:g} s",
                headers={"Connection": "close"},
            ) from None
        self._taken += len(message.get("body", b""))
        if self._taken > self._most:
            raise _too_large(self._most)
        self._whole = not message.get("more_body", False)
        return message


def _too_large(most: int) -> HttpProblem:
    return HttpProblem(
        413,
        "too_large",
        f"the body has more than {most} bytes (max_payload): send a reference to its content",
        headers={"Connection": "close"},
    )


def _length(scope: Scope) -> int:
    """Of the body, as a header tells; 0 where none does. Raises HttpProblem."""
    text = _header(scope["headers"], b"content-length")
    if text is None:
        return 0
    if _header(scope["headers"], b"transfer-encoding") is not None:
        # Whoever stands between may go by the other one (RFC 9112, 6.1).
        raise invalid("Content-Length beside Transfer-Encoding", headers={"Connection": "close"})
    if not text.isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS:
        raise invalid("the header Content-Length is no number")
    return int(text)


def _check_local(scope: Scope, headers: list[tuple[bytes, bytes]]) -> None:
    """Without keys only programs of this machine may call.

    Not those of others through a proxy, nor a page of a site whose name leads here.
    """
    client: tuple[str, int] | None = scope.get("client")
    if client is not None and not is_loopback(client[0]):
        raise _closed("it has no API keys, and answers programs of its own machine only")
    if any(_PROXIED.fullmatch(name) for name, _ in headers):
        raise _closed("it has no API keys, and answers nobody through a proxy")
    host = _header(headers, b"host")
    if host is not None and not is_loopback(_hostname(host)):
        raise _closed("it has no API keys, and has to be called as localhost or 127.0.0.1")


def _check_query(query: bytes) -> None:
    """What is no text would be read as another one."""
    try:
        unquote_to_bytes(query).decode()
    except ValueError:
        raise invalid("the query is not UTF-8") from None


def _check_site(headers: list[tuple[bytes, bytes]]) -> None:
    """A page of another site must not have its reader's browser send or move anything."""
    site = _header(headers, b"sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise _other_site()
    origin, host = _header(headers, b"origin"), _header(headers, b"host")
    if site is None and origin is not None and _netloc(origin) != (host or "").lower():
        raise _other_site()


def _check_content(headers: list[tuple[bytes, bytes]]) -> None:
    """A body has to be what its headers say of it, and to be said of once."""
    kinds = {value.strip() for name, value in headers if name == b"content-type"}
    if len(kinds) > 1:
        raise invalid("the header Content-Type stands more than once")
    codings = [value.lower() for name, value in headers if name == b"content-encoding"]
    said = {one.strip() for one in b",".join(codings).split(b",")} - {b"", b"identity"}
    if said:
        raise HttpProblem(
            415,
            "unsupported_encoding",
            f"the body is encoded ({b', '.join(sorted(said)).decode('latin-1')}): send it as it is,"
            " without Content-Encoding",
            headers={"Accept-Encoding": "identity"},
        )


def _closed(why: str) -> HttpProblem:
    return HttpProblem(
        403, "forbidden", f"this gateway is not open to you: {why}; make a key with `oncepool"
        " gateway --new-key NAME`"
    )  # fmt: skip


def _other_site() -> HttpProblem:
    return HttpProblem(403, "forbidden", "a page of another site may not call this gateway")


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in headers if key == name), None)


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _routed(scope: Scope) -> Scope:
    """The scope with the path by which routes are found.

    Some hosts take the path that a gateway is mounted at off `path` and say nothing of it in
    `root_path`: only `raw_path` has it.
    """
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return scope
    try:
        found = routed_below(raw, scope["path"])
    except ValueError:
        raise invalid("the path is not UTF-8") from None
    if found is None:
        return scope
    path, front = found
    root: str = scope.get("root_path", "")
    if front and not root.endswith(front):
        root += front
    return {**scope, "path": f"{root if front else ''}{path}", "root_path": root}


def _plain_cookies(scope: Scope) -> Scope:
    """The scope without cookies in quotes, which are none of ours.

    FastAPI reads those of every call, and Python before 3.11.10 takes seconds to unquote long ones.
    """
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if not any(name == b"cookie" and b'"' in value for name, value in headers):
        return scope
    return {
        **scope,
        "headers": [
            (name, _unquoted(value) if name == b"cookie" else value) for name, value in headers
        ],
    }


def _unquoted(cookies: bytes) -> bytes:
    return b";".join(one for one in cookies.split(b";") if b'"' not in one)


def _with_security(headers: Any) -> list[tuple[bytes, bytes]]:
    said = list(headers)
    names = {name.lower() for name, _ in said}
    return said + [pair for pair in SECURITY if pair[0] not in names]
