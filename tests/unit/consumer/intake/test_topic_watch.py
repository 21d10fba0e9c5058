"""Topics that are gone are told, whoever of the brokers is asked first."""

from __future__ import annotations

from collections.abc import Iterator

from consumer.intake.topic_watch import TopicWatch
from processing.logs import get_logger
from tests.support.thread_starts import refusing
from tests.support.waiting import eventually


def test_a_broker_that_has_not_heard_of_it_yet_does_not_end_the_look() -> None:
    lagging: Iterator[frozenset[str]] = iter([frozenset("a")])
    watch = TopicWatch("a", lambda: next(lagging, frozenset()), get_logger("test"), 0.01)
    watch.look_again()  # its partitions were taken away
    eventually(lambda: watch.missing == ("a",), 10)
    watch.close()


def test_it_ends_once_all_is_there_and_begins_anew_when_asked() -> None:
    there = frozenset("a")
    looks: list[int] = []

    def topics() -> frozenset[str]:
        looks.append(1)
        return there

    watch = TopicWatch("a", topics, get_logger("test"), 0.0)
    for _ in range(3):
        before = len(looks)
        watch.look_again()
        eventually(lambda: not watch.looking, 10)
        assert len(looks) > before
    assert watch.missing == ()
    watch.close()


def test_a_look_that_no_thread_could_be_started_for_is_made_later() -> None:
    watch = TopicWatch("a", lambda: frozenset("a"), get_logger("test"), 0.0)
    with refusing("topics"):
        watch.look_again()
        watch.tend()
    assert not watch.looking
    watch.tend()
    eventually(lambda: watch.missing == (), 10)
    eventually(lambda: not watch.looking, 10)
    watch.tend()
    assert not watch.looking, "all is there"
    watch.close()


def test_while_no_thread_can_be_started_there_are_pauses() -> None:
    watch = TopicWatch("a", lambda: frozenset("a"), get_logger("test"), 1e9)
    with refusing("topics"):
        watch.look_again()
    watch.tend()
    assert not watch.looking
    watch.close()
