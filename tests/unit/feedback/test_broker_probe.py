"""When a client is asked whether it still finds brokers, and by whom that is found out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from feedback.broker_contact import PAUSE, TIMEOUTS
from feedback.broker_probe import BrokerProbe, in_callback
from tests.support.thread_starts import refusing
from tests.support.waiting import eventually

ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


class Client:
    """One that names brokers, or none, or does not answer."""

    def __init__(self) -> None:
        self.brokers: dict[int, str] | None = {1: "one"}
        self.asked: list[float] = []

    def list_topics(self, *, timeout: float) -> Any:
        self.asked.append(timeout)
        if self.brokers is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(brokers=self.brokers)


class Watched:
    def __init__(self, **properties: Any) -> None:
        self.now = 0.0
        self.others_find = True
        self.looks = 0
        self.client = Client()
        self.probe = BrokerProbe(properties, self._find, lambda: self.now)

    def _find(self, _: object) -> bool:
        self.looks += 1
        return self.others_find

    def lost(self) -> bool:
        """After a pause, and once it is known what others find."""
        self.now += PAUSE
        looks, lost = self.looks, self.probe.lost(self.client)
        if self.probe._look is not None:
            eventually(lambda: self.looks > looks and not self.probe._look.is_alive())  # type: ignore[union-attr]
            lost = self.probe.lost(self.client)
        return lost


def test_a_look_that_no_thread_could_be_started_for_is_made_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    watched.probe.heard(ALL_DOWN)
    watched.now += PAUSE
    with refusing("brokers"):
        assert not any(watched.probe.lost(watched.client) for _ in range(3))
    assert caplog.text.count("can't start new thread") == 1
    watched.now += PAUSE
    watched.probe.lost(watched.client)
    eventually(lambda: watched.looks == 1)


def test_a_consumer_that_no_thread_could_be_started_for_is_closed_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched, closed = Watched(), threading.Event()
    with refusing("leave"):
        watched.probe.leave(SimpleNamespace(close=closed.set))
        assert not any(watched.probe.lost(watched.client) for _ in range(3))
    assert caplog.text.count("can't start new thread") == 1
    watched.probe.lost(watched.client)
    assert not closed.is_set()
    watched.now += PAUSE
    watched.probe.lost(watched.client)
    assert closed.wait(30)


def test_nobody_is_asked_before_all_brokers_were_down() -> None:
    watched = Watched()
    watched.probe.heard(KafkaError(KafkaError._TRANSPORT))
    assert not any(watched.lost() for _ in range(3))
    assert (watched.looks, watched.client.asked) == (0, [])


def test_while_nobody_finds_a_broker_the_client_is_not_asked() -> None:
    watched = Watched()
    watched.others_find, watched.client.brokers = False, None
    watched.probe.heard(ALL_DOWN)
    assert not any(watched.lost() for _ in range(5))
    assert watched.looks > 1
    assert watched.client.asked == []


def test_who_finds_none_where_others_do_has_lost_them() -> None:
    for brokers in (None, dict[int, str]()):
        watched = Watched()
        watched.client.brokers = brokers
        watched.probe.heard(ALL_DOWN)
        assert [watched.lost() for _ in TIMEOUTS] == [False, False, True]
        assert watched.client.asked == list(TIMEOUTS)


def test_who_answers_is_not_asked_again() -> None:
    watched = Watched()
    watched.probe.heard(ALL_DOWN)
    assert not any(watched.lost() for _ in range(5))
    assert len(watched.client.asked) == 1


def test_who_has_heard_from_a_broker_meanwhile_has_not_lost_them() -> None:
    """Its answer about them waits behind what they have to do first."""
    watched = Watched()
    watched.client.brokers = None
    watched.probe.heard(ALL_DOWN)
    assert not any(watched.lost() for _ in TIMEOUTS[1:])
    watched.probe.heard_from()
    assert not any(watched.lost() for _ in range(5))
    assert len(watched.client.asked) == len(TIMEOUTS) - 1
    watched.probe.heard(ALL_DOWN)
    assert [watched.lost() for _ in TIMEOUTS] == [False, False, True]


def test_what_is_heard_while_a_client_is_asked_counts() -> None:
    watched = Watched()
    watched.client.brokers = None
    watched.probe.heard(ALL_DOWN)
    assert not any(watched.lost() for _ in TIMEOUTS[1:])
    ask = watched.client.list_topics

    def confirmed_meanwhile(*, timeout: float) -> Any:
        watched.probe.heard_from()
        return ask(timeout=timeout)

    watched.client.list_topics = confirmed_meanwhile  # type: ignore[method-assign]
    assert not any(watched.lost() for _ in range(5))


def test_whoever_wants_to_hear_of_errors_does() -> None:
    heard: list[KafkaError] = []
    watched = Watched(error_cb=heard.append)
    watched.probe.properties()["error_cb"](ALL_DOWN)
    assert heard == [ALL_DOWN]


@pytest.mark.parametrize("name", ["error_cb", "stats_cb", "throttle_cb"])
def test_what_a_callback_raises_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []

    def raising(said: object) -> None:
        told.append(said)
        raise ValueError("its own")

    Watched(**{name: raising}).probe.properties()[name](ALL_DOWN)
    assert told == [ALL_DOWN]
    assert f"{name} raised" in caplog.text
    assert "its own" in caplog.text


def test_a_callback_may_end_the_program_and_no_other_thread() -> None:
    callback = Watched(error_cb=sys.exit).probe.properties()["error_cb"]
    with pytest.raises(SystemExit):
        callback(ALL_DOWN)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(callback, ALL_DOWN).result() is None


def test_a_callback_in_the_middle_of_another_ends_only_itself() -> None:
    seen: list[bool] = []

    def callback(told: Callable[[str], object]) -> Callable[[str], object]:
        given: Callable[[str], object] = BrokerProbe({"stats_cb": told}).properties()["stats_cb"]
        return given

    inner = callback(lambda _: seen.append(in_callback()))

    def outer(figures: str) -> None:
        inner(figures)
        seen.append(in_callback())

    callback(outer)("{}")
    assert [*seen, in_callback()] == [True, True, False]
