"""What a client of an event loop still knows of what it has long sent."""

from __future__ import annotations

import asyncio

import pytest

from feedback import AsyncClient, WaitTimeout
from feedback.contract.states import State
from feedback.status.memory_store import MemoryStatusStore
from tests.support.client import FakeProducer
from tests.support.tasks import in_loop, soon


def test_who_called_in_vain_is_told_whether_the_brokers_have_it_whatever_was_sent_meanwhile(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        async with AsyncClient(producer, store, "requests") as client:
            client._submissions._limit = 5
            call = asyncio.ensure_future(client.call("t", 1, timeout=1.0, request_id="slow"))
            await soon(lambda: client.submission("slow") is not None)
            for _ in range(5):
                await client.submit("t", 1)
            assert client.submission("slow") is None
            with pytest.raises(WaitTimeout):
                await call
            assert (await client.delivered("slow")).state is State.ACCEPTED

    in_loop(work)
