"""Those that end what runs: how many are at it at once, whatever becomes of who waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from consumer.admin.journal import JournalUnreachable
from consumer.gateway import running_ends
from consumer.gateway.running_ends import RunningEnds


async def nothing(_: Any) -> list[Any]:
    return []


async def given_up(call: Callable[[], Any], started: threading.Event) -> None:
    waiting = asyncio.ensure_future(call())
    await asyncio.to_thread(started.wait, 20)
    waiting.cancel()
    await asyncio.wait({waiting})


async def late(call: Callable[[], Any], _: threading.Event) -> None:
    with pytest.raises(JournalUnreachable):
        await call()


@pytest.mark.parametrize("left", [given_up, late])
def test_who_is_at_it_keeps_his_place_though_nobody_waits_for_him(
    left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_ends, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(running_ends, "MOVE_WITHIN", 0.3)
    started, go_on = threading.Event(), threading.Event()

    def at_it(_: Any) -> None:
        started.set()
        go_on.wait(20)

    async def scenario() -> None:
        ends = RunningEnds()
        try:
            await left(lambda: ends.end(at_it, nothing, 0), started)
            with pytest.raises(JournalUnreachable, match="nothing was heard within"):
                await ends.end(lambda _: "at once", nothing, 0)
        finally:
            go_on.set()
        assert await ends.end(lambda _: "then", nothing, 20) == "then"

    asyncio.run(scenario())


def test_a_thread_that_is_not_to_be_had_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_ends, "MOST_AT_ONCE", 1)

    def none(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        ends = RunningEnds()
        with monkeypatch.context() as patch:
            patch.setattr(running_ends, "in_thread", none)
            with pytest.raises(RuntimeError):
                await ends.end(lambda _: "never", nothing, 0)
        assert await ends.end(lambda _: "then", nothing, 20) == "then"

    asyncio.run(scenario())
