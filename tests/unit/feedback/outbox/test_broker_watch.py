"""When brokers are asked whether they answer."""

from __future__ import annotations

import itertools
import threading

import pytest

from feedback.outbox.relay import broker_watch
from feedback.outbox.relay.broker_watch import BrokerWatch
from tests.support.waiting import eventually


def test_brokers_that_confirm_rows_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watch, "ASK_EVERY", 0.001)
    stop, looks, sends = threading.Event(), itertools.count(1), True
    looked, asked, away = 0, 0, "no broker answers"

    def confirmed() -> int:
        nonlocal looked
        looked = next(looks)
        return looked if sends else 0

    def ask() -> str | None:
        nonlocal asked
        asked += 1
        return away

    watch = BrokerWatch("default", ask, confirmed, stop)
    assert watch.away is not None  # nobody knows yet
    watch.start()
    try:
        eventually(lambda: looked > 5)
        assert (watch.away, asked) == (None, 0)
        sends = False
        eventually(lambda: watch.away == away)
        sends = True
        eventually(lambda: watch.away is None)
    finally:
        stop.set()


def test_a_question_that_fails_in_an_unknown_way_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_watch, "ASK_EVERY", 0.001)
    stop, asked = threading.Event(), 0

    def ask() -> str | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise RuntimeError("a bug")
        return None

    watch = BrokerWatch("default", ask, lambda: 0, stop)
    watch.start()
    try:
        eventually(lambda: watch.away is None)
    finally:
        stop.set()
