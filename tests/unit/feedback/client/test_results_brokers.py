"""A reader of result records and its brokers: whether it has lost them, and what then comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from confluent_kafka import KafkaError, Message

from feedback.client import result_source
from feedback.client.results import Results
from feedback.errors import ConfigurationError

ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
RECORD = orjson.dumps(
    {"id": "a", "type": "t", "state": "done", "code": "ok", "at": "2026-01-01T00:00:00Z"}
)


class Consumer:
    """One record, and then nothing; nothing comes of one that is closed."""

    def __init__(self) -> None:
        self.left = [Message("results", partition=0, offset=1, value=RECORD)]
        self.closed = False

    def poll(self, _timeout: float) -> Message | None:
        assert not self.closed
        return self.left.pop() if self.left else None

    def close(self) -> None:
        self.closed = True

    def assign(self, _: Any) -> None: ...


Reader = Callable[[Callable[[], Consumer]], Results]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    def make(connect: Callable[[], Consumer]) -> Results:
        monkeypatch.setattr(result_source, "connect", lambda *_: connect())
        monkeypatch.setattr(result_source, "ResultPositions", Mock())
        return Results({}, "results", None, from_beginning=True, closed=lambda _: None)

    return make


def test_who_reads_a_record_has_not_lost_its_brokers(reader: Reader) -> None:
    reading = reader(Consumer)
    reading._source._probe.heard(ALL_DOWN)
    assert reading.poll(0.0) is not None
    assert not reading._source._probe._contact.doubtful
    reading._source._probe.heard(ALL_DOWN)
    assert reading.poll(0.0) is None
    assert reading._source._probe._contact.doubtful


def test_as_long_as_no_other_client_can_be_made_the_one_that_is_lost_is_used(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Consumer | ConfigurationError] = [
        Consumer(), ConfigurationError("no such certificate"), Consumer(),
    ]  # fmt: skip

    def connect() -> Consumer:
        one = made.pop(0)
        if isinstance(one, ConfigurationError):
            raise one
        return one

    reading = reader(connect)
    first = reading._source._consumer
    first.left.clear()
    monkeypatch.setattr(reading._source._probe, "lost", lambda _: True)
    reading.poll(0.0)
    assert reading._source._consumer is first
    assert not first.closed
    assert reading._source._probe._contact.doubtful, "it is asked again"
    reading.poll(0.0)
    assert reading._source._consumer is not first
    reading.close()


class Late(BaseException):
    """What a signal handler raises."""


@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_out_of_whose_calls_signal_handlers_raise_goes_back_all_the_same(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    reading = reader(Consumer)
    assigned: list[Any] = []
    raising = [Late()] * times

    def interrupted(*_: Any) -> None:
        if raising:
            raise raising.pop()

    def assign(to: Any) -> None:
        interrupted()
        assigned.append(to)

    monkeypatch.setattr(reading._source._consumer, "poll", interrupted)
    monkeypatch.setattr(reading._source._consumer, "assign", assign)
    for _ in range(times):
        with pytest.raises(Late):
            reading.poll(0.0)
    reading.poll(0.0)
    assert assigned == [reading._source._positions.starts]


def test_another_client_reads_on_also_where_a_signal_handler_raised_before_it_began(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Another(Consumer):
        raising = 1

        def assign(self, _: Any) -> None:
            if self.raising:
                self.raising -= 1
                raise Late
            self.assigned = True

    made = [Consumer(), Another()]
    reading = reader(lambda: made.pop(0))
    lost = [True]
    monkeypatch.setattr(reading._source._probe, "lost", lambda _: bool(lost) and lost.pop())
    with pytest.raises(Late):
        reading.poll(0.0)
    assert reading.poll(0.0) is not None
    assert reading._source._consumer.assigned
