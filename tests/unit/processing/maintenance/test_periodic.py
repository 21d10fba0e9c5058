from __future__ import annotations

import pytest

from processing.maintenance.periodic import PeriodicDuties


def test_duties_come_again_after_their_interval() -> None:
    schedule = PeriodicDuties({"a": 1.0, "b": 3.0}, 0.0)

    assert schedule.take(0.9) == []
    assert schedule.pause(0.9) == pytest.approx(0.1)
    assert schedule.take(3.0) == ["a", "b"]
    assert schedule.take(3.5) == []
    assert schedule.take(4.0) == ["a"]


def test_a_late_duty_is_not_made_up_for() -> None:
    schedule = PeriodicDuties({"a": 1.0}, 0.0)

    assert schedule.take(10.0) == ["a"]
    assert schedule.take(10.5) == []


def test_a_duty_can_be_made_due() -> None:
    schedule = PeriodicDuties({"a": 60.0}, 0.0)
    schedule.hasten("a", 1.0)

    assert schedule.pause(1.0) == 0.0
    assert schedule.take(1.0) == ["a"]
