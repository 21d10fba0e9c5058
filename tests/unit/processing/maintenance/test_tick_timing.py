"""When schedules are looked at, and for how long they have been."""

from __future__ import annotations

import pytest

from feedback.journal.schedules import TicksMade
from processing.maintenance.ticking import BREAK, LOOK_EVERY, TickTiming

NOTHING = TicksMade([], {}, None)


def watch(timing: TickTiming, *looks: float) -> float:
    watched = 0.0
    for now in looks:
        watched = timing.watched(now)
        timing.looked(NOTHING, now)
    return watched


def test_looks_come_every_few_seconds_while_there_is_something_to_look_after() -> None:
    timing = TickTiming()
    assert timing.pause(0.0) is None
    timing.declared(0.0, any_=True)
    assert timing.pause(0.0) == 0.0
    timing.looked(NOTHING, 1.0)
    assert timing.pause(1.0) == LOOK_EVERY


def test_one_who_has_just_started_has_watched_nothing() -> None:
    assert watch(TickTiming(), 1000.0) == 0.0
    assert watch(TickTiming(), 1000.0, 1010.0, 1020.0) == pytest.approx(20.0)


def test_a_break_begins_it_anew() -> None:
    timing = TickTiming()
    assert watch(timing, 0.0, 10.0, 20.0, 30.0) == pytest.approx(30.0)
    assert watch(timing, 30.0 + BREAK + 1) == 0.0


def test_a_look_that_failed_is_none() -> None:
    timing = TickTiming()
    watch(timing, 0.0, 10.0)
    for failed in (20.0, 30.0, 40.0):
        timing.watched(failed)
    assert timing.watched(50.0) == 0.0
