"""Lists of statuses with large results: read part by part, and bounded."""

from __future__ import annotations

import asyncio
import tracemalloc

import httpx

from consumer.gateway import requests_api
from feedback.contract.states import State
from tests.support.gateway import GatewayBench

RESULT = b'"%s"' % (b"x" * 1024 * 1024)
ROWS = b'{"rows": [%s]}' % b", ".join(b'{"price": %d.50}' % n for n in range(10_000))
"""A result that takes much more memory when it is parsed."""


def test_large_ones_are_read_a_few_at_a_time_and_too_many_are_refused() -> None:
    bench = GatewayBench()
    ids = [f"r{n}" for n in range(40)]
    for name in ids:
        bench.say(name, State.DONE, result=RESULT)
    asked: list[int] = []
    read = bench.store.read

    def counted(names: list[str]) -> object:
        asked.append(len(names))
        return read(names)

    bench.store.read = counted  # type: ignore[method-assign, assignment]

    async def scenario(http: httpx.AsyncClient) -> None:
        some = await http.get("/requests", params={"id": ids[:31]})
        assert [row["id"] for row in some.json()] == ids[:31]
        assert asked[:4] == [5, 5, 2, 1]
        all_of_them = await http.get("/requests", params={"id": ids})
        assert all_of_them.status_code == 413
        assert "32 MiB" in all_of_them.json()["detail"]
        assert "31 or fewer" in all_of_them.json()["detail"]

    bench.run(scenario)


def test_small_ones_take_few_reads() -> None:
    bench = GatewayBench()
    ids = [f"r{n}" for n in range(requests_api.MOST_IDS)]

    async def scenario(http: httpx.AsyncClient) -> None:
        found = await http.get("/requests", params={"id": ids})
        assert [row["id"] for row in found.json()] == ids

    bench.run(scenario)
    assert len(bench.journal.asked) == 13


def test_large_results_are_handed_on_as_they_stand() -> None:
    bench = GatewayBench()
    bench.say("a", State.DONE, result=ROWS)
    bench.journal.put("b", State.DONE, result={"b": 1})

    async def scenario(http: httpx.AsyncClient) -> None:
        assert ROWS in (await http.get("/requests/a")).content
        some = await http.get("/requests", params={"id": ["a", "b"]})
        assert ROWS in some.content
        assert [len(row["result"]) for row in some.json()] == [1, 1]

    bench.run(scenario)


def test_many_large_results_at_once_take_little_more_than_their_bytes() -> None:
    bench = GatewayBench()
    names = [f"r{n}" for n in range(60)]
    for name in names:
        bench.say(name, State.DONE, result=ROWS)

    async def scenario(http: httpx.AsyncClient) -> None:
        before = tracemalloc.get_traced_memory()[0]
        found = await asyncio.gather(*(http.get(f"/requests/{name}") for name in names))
        assert all(answer.status_code == 200 for answer in found)
        assert tracemalloc.get_traced_memory()[1] - before < 3 * len(names) * len(ROWS)

    tracemalloc.start()
    try:
        bench.run(scenario)
    finally:
        tracemalloc.stop()
