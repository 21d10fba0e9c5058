"""Which records a reader of a group counts as handled, however it ends."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import orjson
import pytest
from confluent_kafka import Message

from feedback.client import result_source
from feedback.client.async_results import AsyncResults
from feedback.client.results import Results

FIELDS = {"type": "t", "state": "done", "code": "ok", "at": "2026-01-01T00:00:00Z"}


class Consumer:
    """Two records; says which are handled."""

    def __init__(self) -> None:
        self.left = [
            Message("results", partition=0, offset=n, value=orjson.dumps({"id": name, **FIELDS}))
            for n, name in enumerate(("a", "b"))
        ]
        self.handled: list[int | None] = []
        self.closed = False

    def subscribe(self, *_: object, **__: object) -> None: ...

    def poll(self, _timeout: float) -> Message | None:
        return self.left.pop(0) if self.left else None

    def store_offsets(self, message: Message) -> None:
        assert not self.closed
        self.handled.append(message.offset())

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def reading(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.setattr(result_source, "connect", lambda *_: consumer)
    monkeypatch.setattr(result_source, "ResultPositions", Mock())
    return Results({}, "results", "group", from_beginning=True, closed=lambda _: None)


class BookError(Exception):
    """Of who works on a record."""


def test_a_record_is_finished_in_the_middle_of_which_the_reader_is_closed(
    reading: Results, consumer: Consumer
) -> None:
    came = []
    with reading:
        for result in reading:
            reading.close()  # as a signal handler does
            assert not consumer.handled
            came.append(result.id)
        assert consumer.closed
    assert (came, consumer.handled) == (["a"], [0])


@pytest.mark.parametrize("closes", [True, False])
def test_a_record_that_is_half_done_comes_again(
    reading: Results, consumer: Consumer, closes: bool
) -> None:
    def block() -> None:
        with reading:
            for _ in reading:
                if closes:
                    reading.close()
                raise BookError

    with pytest.raises(BookError):
        block()
    assert not consumer.handled
    assert consumer.closed


def test_what_was_read_last_is_handled_with_the_end_of_the_block(
    reading: Results, consumer: Consumer
) -> None:
    with reading:
        for _ in reading:
            break
        reading.close()
        assert not consumer.closed
    assert consumer.handled == [0]
    assert consumer.closed


def test_without_a_block_what_was_read_last_is_handled_when_it_is_closed(
    reading: Results, consumer: Consumer
) -> None:
    assert reading.poll(60) is not None
    reading.close()
    assert consumer.handled == [0]
    assert consumer.closed
    assert reading.poll(60) is None


def test_what_is_no_record_is_handled_by_nobody(reading: Results, consumer: Consumer) -> None:
    """Who closes then has nothing to wait for."""
    consumer.left = [Message("results", partition=0, offset=7, value=b"other")]
    with reading:
        assert reading.poll(0) is None
        reading.close()
        assert consumer.closed
    assert consumer.handled == [7]


def test_an_error_while_the_next_one_is_waited_for_leaves_none_half_done(
    reading: Results, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def block() -> None:
        with reading:
            for _ in reading:
                monkeypatch.setattr(consumer, "poll", Mock(side_effect=KeyboardInterrupt))

    with pytest.raises(KeyboardInterrupt):
        block()
    assert consumer.handled == [0]


def test_a_task_finishes_the_record_in_the_middle_of_which_another_closes(
    reading: Results, consumer: Consumer
) -> None:
    async def main() -> list[str]:
        came = []
        async with AsyncResults(reading) as records:
            async for result in records:
                await asyncio.create_task(records.close())
                assert not consumer.handled
                came.append(result.id)
            assert consumer.closed
        return came

    assert asyncio.run(main()) == ["a"]
    assert consumer.handled == [0]


def test_a_record_that_a_task_left_half_done_comes_again(
    reading: Results, consumer: Consumer
) -> None:
    async def main() -> None:
        async with AsyncResults(reading) as records:
            async for _ in records:
                raise BookError

    with pytest.raises(BookError):
        asyncio.run(main())
    assert not consumer.handled
    assert consumer.closed
