from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime

import pytest

from feedback.client.send_clock import SendClock, SendTime
from feedback.contract import ids
from feedback.contract.envelope import read
from feedback.contract.headers import headers_for
from feedback.contract.ids import uuid7

START = 1_700_000_000_000_000
"""Microseconds."""


class Given:
    """A clock that says what it is told, in microseconds after START."""

    def __init__(self) -> None:
        self.at = 0

    def __call__(self) -> int:
        return (START + self.at) * 1_000


def read_time(id: str, sent: SendTime) -> datetime:
    """When a consumer takes it to be sent."""
    headers = headers_for(id, "t", time=sent.exact)
    envelope = read(("t", 0, 0, sent.timestamp, None, b"1", list(headers), None, None))
    return datetime.fromtimestamp(envelope.exact_time, UTC)


def test_a_time_is_said_exactly_only_where_nothing_else_tells_it_from_the_one_before() -> None:
    now = Given()
    clock = SendClock(now)
    exact = []
    for now.at in (0, 0, 3, 998, 1_000, 1_500, 2_000):
        exact.append(clock.next("a").exact)
    assert [None if one is None else one.microsecond for one in exact] == [
        None, 1, 3, 998, None, 1_500, None,
    ]  # fmt: skip


def test_each_time_is_later_than_the_last_whatever_the_clock_and_the_ids_say() -> None:
    now = Given()
    clock = SendClock(now)
    steps = [0, 0, 1, 2, 2, 999, 999, 999, 1_000, 1_001, 400, 300, 0, 1_002, 900_000, 2_000]
    times = []
    for now.at in steps:
        times.append(read_time("own", clock.next("own")))
    assert all(before < after for before, after in itertools.pairwise(times))
    real = SendClock()
    names = [str(uuid7()) if number % 3 else f"own-{number}" for number in range(300)]
    times = [read_time(name, real.next(name)) for name in names]
    assert all(before < after for before, after in itertools.pairwise(times))


def test_ids_that_tell_their_time_say_it_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Given()
    monkeypatch.setattr(time, "time_ns", now)
    monkeypatch.setattr(ids, "_last", 0)
    clock = SendClock(now)
    sent = []
    for now.at in range(0, 5_000, 50):
        sent.append(clock.next(str(uuid7())))
    assert {one.exact for one in sent} == {None}


def test_a_clock_that_was_set_right_is_followed() -> None:
    now = Given()
    clock = SendClock(now)
    now.at = 3_600_000_000
    clock.next("a")
    now.at = 5_000
    assert clock.next("b") == SendTime((START + 5_000) // 1_000, None)
