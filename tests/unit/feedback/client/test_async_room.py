"""Room in the send queue of an AsyncClient: in the order in which its tasks came, or an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from feedback import AsyncClient, QueueFull
from feedback.status.memory_store import MemoryStatusStore
from tests.support.client import FakeProducer, holds_nothing, opened
from tests.support.tasks import in_loop, soon


@asynccontextmanager
async def warmed(producer: FakeProducer, store: MemoryStatusStore) -> AsyncIterator[AsyncClient]:
    """A client that has sent something, and whose tasks wait long for room."""
    async with opened(producer, store, queue_timeout=40.0) as client:
        await client.submit("t", -1)
        await client.flush(5)
        yield client


def test_who_waits_for_room_is_served_in_turn(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        async with warmed(producer, store) as client:
            producer.confirming.clear()
            producer.room = 1
            calls = [asyncio.ensure_future(client.submit("t", number)) for number in range(300)]
            await soon(lambda: producer.refused)
            await asyncio.sleep(0)
            refused = producer.refused
            assert refused < 10  # one asks, the others wait for it
            producer.confirming.set()
            names = await asyncio.gather(*calls)
            assert [envelope.id for envelope in producer.envelopes()[1:]] == names
            # Each message delivered wakes one task, not all that wait.
            assert producer.refused < 10 * len(names)
            assert holds_nothing(client)

    in_loop(work)


def test_who_comes_while_the_next_one_is_woken_waits_behind_all_others(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    """The lock of the turn is free then, and there is room."""

    async def work() -> None:
        async with warmed(producer, store) as client:
            producer.room = 0
            calls = [asyncio.ensure_future(client.submit("t", n)) for n in range(3)]
            await soon(lambda: producer.refused)
            offer = client._deliveries.offer

            def offered(message: Any, submission: Any) -> bool:
                sent = offer(message, submission)
                if sent and len(calls) == 3:  # begins before the next one has heard of its turn
                    calls.append(asyncio.ensure_future(client.submit("t", 3)))
                return sent

            client._deliveries.offer = offered  # type: ignore[method-assign]
            producer.room = 1_000
            await calls[0]
            names = [await call for call in calls]
            assert len(names) == 4
            assert [envelope.id for envelope in producer.envelopes()[1:]] == names

    in_loop(work)


def test_no_room_is_an_error_after_the_queue_time_out(
    producer: FakeProducer, store: MemoryStatusStore
) -> None:
    async def work() -> None:
        async with opened(producer, store) as client:
            producer.room = 0
            answers = await asyncio.gather(
                *(client.submit("t", n) for n in range(20)), return_exceptions=True
            )
            assert {type(answer) for answer in answers} == {QueueFull}
            with pytest.raises(QueueFull):
                await client.call("t", 1, timeout=1)
            assert holds_nothing(client)

    in_loop(work)
