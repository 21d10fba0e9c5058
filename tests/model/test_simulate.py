"""A seed is a schedule, and what breaks one is named with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model import group, service_world
from tests.model.pool_rules import Violation
from tests.model.simulate import ROUND, Schedule
from tests.model.tally import FAULTS, Tally

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize("seed", [ROUND, ROUND + 1, ROUND + 2, ROUND + 3])
def test_a_seed_is_a_schedule(seed: int) -> None:
    traced, silent = Schedule(seed, tracing=True), Schedule(seed)
    traced.run()
    silent.run()
    assert traced.trace
    assert silent.trace == []
    assert (traced.kind, traced.happened, traced.seconds) == (
        *(silent.kind, silent.happened, silent.seconds),
    )


def test_a_killed_member_that_was_about_to_leave_holds_no_claim() -> None:
    world = service_world.World(0)
    process = world.processes[0]
    process.stop()
    world.follow()
    assert world.lives(process)
    world.kill(process)
    assert not world.lives(process)


@pytest.mark.parametrize("error", [Violation, KeyError])
def test_whatever_is_raised_breaks_the_schedule(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_world: group.World) -> None:
        raise error("two of it")

    monkeypatch.setattr(group.World, "settle", fails)
    schedule = Schedule(3)
    schedule.run()
    assert "two of it" in schedule.broken


def test_what_is_called_a_fault_is_counted_somewhere() -> None:
    folder = Path(__file__).parent
    worlds = ("happenings.py", "group.py", "pool_world.py", "service_world.py", "sim_redis.py")
    text = "".join((folder / name).read_text() for name in worlds)
    names = {name.partition(": ")[0] for name in FAULTS}
    assert {name for name in names if f'"{name}' not in text} == set()


def test_errors_of_commits_are_faults_and_what_follows_from_them_is_none() -> None:
    tally = Tally()
    tally.happened.update({"error _TRANSPORT": 2, "a worker dies": 3, "last words": 4})
    assert tally.faults == {"error _TRANSPORT": 2, "a worker dies": 3}
