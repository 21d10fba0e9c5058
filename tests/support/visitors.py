"""Visitors of the gateway's pages, with what they are shown."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.gateway import AT, KEY, key
from tests.support.pages import NASTY, PagesBench

READER = "a-reading-key-of-forty-characters-for-te"
SOME = "a-key-for-some-types-of-forty-characters"
PAGES = ("/", "/requests", "/requests/r1", "/dead-letters", "/dead-letters/3", "/limits",
         "/schedules", "/oddities", "/audit")  # fmt: skip
LETTER = {
    "kind": "message", "id": 3, "request_id": None, "type": "a.b", "reason": "malformed",
    "detail": NASTY, "at": AT, "topic": "t", "partition": 0, "kafka_offset": 1, "key": None,
    "headers": [], "payload": b"\xff\x00", "produced_at": AT, "retried_at": None,
    "retried_as": None,
}  # fmt: skip


def made(**settings: Any) -> PagesBench:
    """Pages before a dead letter, for everybody of this machine."""
    bench = PagesBench(**settings)
    bench.pages_journal.letters = bench.operator.letters = [LETTER]
    return bench


def keyed(**settings: Any) -> PagesBench:
    """The same for an operator, a reader, and one who is for some types."""
    keys = {
        "ops": key("read", "operate"),
        "reader": key("read", token=READER),
        "some": key("read", "operate", token=SOME, types=["a.*"]),
    }
    return made(gateway_keys=keys, **settings)


async def log_in(http: httpx.AsyncClient, given: str = KEY, place: str = "/") -> httpx.Response:
    """With an API key; what was answered."""
    return await http.post("/ui/login", data={"key": given, "next": place})
