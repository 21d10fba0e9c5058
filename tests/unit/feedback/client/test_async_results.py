"""Result records for tasks: what fails comes after what was read before it, and is heard of."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from confluent_kafka import KafkaError

from feedback.client import async_results, result_source
from feedback.client.async_results import AsyncResults
from feedback.client.read_ahead import ReadAhead
from feedback.client.result import ReadMessage
from feedback.client.result_source import ResultSource
from feedback.client.results import Results
from feedback.errors import ResultsFailed
from tests.support.mock_brokers import PLACE, MockBrokers

WAIT = 60.0


class Message:
    """One of the Kafka client's."""

    def __init__(self, id: str | None = None, error: int | None = None) -> None:
        record = {
            "id": id,
            "type": "t",
            "state": "done",
            "code": "ok",
            "at": "2026-01-01T00:00:00Z",
        }
        self._value = orjson.dumps(record)
        self._error = None if error is None else KafkaError(error)

    def error(self) -> KafkaError | None:
        return self._error

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0


class Consumer:
    """Gives what it was given."""

    def __init__(self, *messages: Message | Exception) -> None:
        self.messages = list(messages)
        self.gate: threading.Event | None = None

    def poll(self, _timeout: float) -> Message | None:
        if self.gate is not None:
            assert self.gate.wait(WAIT)
        message = self.messages.pop(0) if self.messages else None
        if isinstance(message, Exception):
            raise message
        return message

    def assign(self, _places: object) -> None: ...


Reader = Callable[[Consumer], AsyncResults]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    def make(consumer: Consumer) -> AsyncResults:
        monkeypatch.setattr(result_source, "connect", lambda *_: consumer)
        monkeypatch.setattr(ResultSource, "_begin", lambda *_, **__: None)
        monkeypatch.setattr(ResultSource, "_positions", Mock(), raising=False)
        return AsyncResults(Results({}, "topic", None, from_beginning=True, closed=lambda _: None))

    return make


async def next_id(reading: AsyncResults) -> str:
    result = await reading.poll(WAIT)
    assert result is not None
    return result.id


def test_what_was_read_before_a_failure_is_not_lost(reader: Reader) -> None:
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer(Message("a"), Message("b"), Message(error=denied), Message("c"))

    async def main() -> list[Any]:
        reading = reader(consumer)
        came = [await next_id(reading), await next_id(reading)]
        with pytest.raises(ResultsFailed):
            await reading.poll(WAIT)
        return [*came, await next_id(reading)]

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_what_was_read_before_the_kafka_client_raises_is_not_lost(reader: Reader) -> None:
    consumer = Consumer(Message("a"), Message("b"), ValueError("a callback's"), Message("c"))

    async def main() -> list[Any]:
        reading = reader(consumer)
        came = [await next_id(reading), await next_id(reading)]
        with pytest.raises(ValueError, match="a callback's"):
            await reading.poll(WAIT)
        return [*came, await next_id(reading)]

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_a_failure_under_a_wait_that_was_cancelled_is_told_to_the_next_one(reader: Reader) -> None:
    consumer = Consumer(Message(error=KafkaError.TOPIC_AUTHORIZATION_FAILED), Message("a"))
    consumer.gate = threading.Event()

    async def main() -> str:
        reading = reader(consumer)
        asking = asyncio.create_task(reading.poll(WAIT))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        taking = reading._taking
        assert taking is not None
        assert consumer.gate is not None
        consumer.gate.set()
        await asyncio.wait([taking])
        with pytest.raises(ResultsFailed):
            await reading.poll(WAIT)
        return await next_id(reading)

    assert asyncio.run(main()) == "a"


def test_a_failure_in_the_very_round_of_a_cancellation_is_told_to_the_next_one(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        taking: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        once = [taking]
        monkeypatch.setattr(async_results, "in_thread", lambda *_: once.pop())
        results = reader(Consumer())
        waits = asyncio.create_task(results.poll(WAIT))
        await asyncio.sleep(0)
        taking.set_exception(ResultsFailed("topic", "mine"))
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        with pytest.raises(ResultsFailed, match="mine"):
            await results.poll(WAIT)

    asyncio.run(steps())


def test_a_wait_that_was_cancelled_in_the_round_in_which_it_ended_blocks_no_loop(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done, and its callback has not been called: to await it lets nothing else run."""

    async def steps() -> str:
        loop = asyncio.get_running_loop()
        taking: asyncio.Future[Any] = loop.create_future()
        once = [taking]
        monkeypatch.setattr(async_results, "in_thread", lambda *_: once.pop())
        results = reader(Consumer())
        waits = asyncio.create_task(results.poll(WAIT))
        await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        taking.set_result([ReadMessage.of(Message("a"))])
        return await next_id(results)

    assert asyncio.run(steps()) == "a"


@pytest.mark.parametrize("grouped", [True, False])
def test_what_is_handled_slowly_is_not_read_far_ahead(grouped: bool) -> None:
    """Else a member of a group would lose its place, and hold up the others."""
    brokers, count = MockBrokers(), 300
    brokers.write([Message(f"{n}").value() for n in range(count)])
    group = f"group-{uuid.uuid4()}" if grouped else None
    kafka = {"bootstrap.servers": brokers.servers}
    results = Results(kafka, PLACE[0], group, from_beginning=True, closed=lambda _: None)
    now = 0.0
    reads: list[float] = []
    take = results.take

    def counted(timeout: float, most: int) -> Any:
        taken = take(timeout, most)
        reads.extend([now] if taken else [])
        return taken

    async def main() -> list[str]:
        nonlocal now
        seen = []
        async with AsyncResults(results) as reading:
            reading._ahead = ReadAhead(lambda: now)
            async for result in reading:
                seen.append(result.id)
                now += 2.0 if len(seen) > 200 else 0.001  # a database that has become slow, say
                if len(seen) == count:
                    break
        return seen

    results.take = counted  # type: ignore[method-assign]
    assert asyncio.run(main()) == [f"{n}" for n in range(count)]
    quick = [at for at in reads if at <= 0.2]
    assert len(quick) < 20, "many are taken at once"
    pauses = [later - at for at, later in pairwise([*reads, now])]
    assert max(pauses) < 8.0
