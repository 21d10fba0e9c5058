"""Lists of statuses under way together: few large ones, and none for who has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from feedback.contract.states import State
from tests.support.gateway import GatewayBench

RESULT = b'"%s"' % (b"x" * 1024 * 1024)
LARGE_AT_ONCE = 3
READERS = 8


class Reader:
    """A client that takes no more of an answer than its status, until it is told to, or goes."""

    def __init__(self, bench: GatewayBench, ids: list[str]) -> None:
        self.status = 0
        self.taken = 0
        self.takes = asyncio.Event()
        self.has_gone = asyncio.Event()
        self._asked = False
        query = "&".join(f"id={name}" for name in ids).encode()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": "/requests", "raw_path": b"/requests", "root_path": "",
            "query_string": query, "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self.call = asyncio.ensure_future(bench.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.has_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        if message["type"] == "http.response.body":
            await self.takes.wait()
            self.taken += len(message["body"])


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def _bench() -> tuple[GatewayBench, list[str]]:
    bench, ids = GatewayBench(), ["r1", "r2", "r3"]
    for name in ids:
        bench.say(name, State.DONE, result=RESULT)
    return bench, ids


def test_few_large_lists_are_held_at_once_until_their_clients_have_taken_them() -> None:
    bench, ids = _bench()

    async def scenario(http: httpx.AsyncClient) -> None:
        readers = [Reader(bench, ids) for _ in range(READERS)]
        # Each has read as much as it may: small lists come after them.
        await until(lambda: sum(one.status == 200 for one in readers) >= LARGE_AT_ONCE)
        small = await http.get("/requests", params={"id": ["r9"]})
        assert small.status_code == 200
        held = [one for one in readers if one.status]
        assert len(held) == LARGE_AT_ONCE
        for one in readers:
            one.takes.set()
        await asyncio.gather(*(one.call for one in readers))
        assert {one.status for one in readers} == {200}
        assert len({one.taken for one in readers}) == 1

    bench.run(scenario)


def test_who_gets_no_place_in_time_is_told_when_to_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, ids = _bench()
    monkeypatch.setattr(bench.parts.lists._large, "_patience", 0.05)

    async def scenario(http: httpx.AsyncClient) -> None:
        readers = [Reader(bench, ids) for _ in range(LARGE_AT_ONCE)]
        await until(lambda: all(one.status == 200 for one in readers))
        late = await http.get("/requests", params={"id": ids})
        assert late.status_code == 503
        assert int(late.headers["retry-after"]) > 0
        for one in readers:
            one.takes.set()
        await asyncio.gather(*(one.call for one in readers))
        assert (await http.get("/requests", params={"id": ids})).status_code == 200

    bench.run(scenario)


def test_a_list_is_read_no_further_for_a_client_that_has_gone() -> None:
    bench = GatewayBench()
    ids = [f"r{n}" for n in range(40)]

    async def scenario(http: httpx.AsyncClient) -> None:
        del http
        goes_on = asyncio.Event()
        read = bench.journal.read

        async def slow(names: Any) -> Any:
            found = await read(names)
            await goes_on.wait()
            return found

        bench.journal.read = slow  # type: ignore[method-assign]
        reader = Reader(bench, ids)
        reader.takes.set()
        await until(lambda: len(bench.journal.asked) == 1)
        reader.has_gone.set()
        await asyncio.wait({reader.call}, timeout=5)
        goes_on.set()
        await reader.call
        assert len(bench.journal.asked) == 1
        assert reader.status == 499

    bench.run(scenario)
