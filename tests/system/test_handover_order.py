"""A key keeps its order at its next owner while its first request runs on where it was before."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.service import WAIT, Bench, Instance
from tests.support.waiting import eventually
from tests.system.test_read_again import Steps

pytestmark = pytest.mark.long  # of one executor, test_elsewhere.py shows it


@pytest.fixture
def steps(bench: Bench, tmp_path: Path) -> Steps:
    return Steps(bench, tmp_path)


def handed_over(bench: Bench, steps: Steps, kind: str, **payload: str) -> tuple[Instance, Instance]:
    """The old owner, in which the first of two requests runs on, and the next one, which reads."""
    old = bench.start(**steps.settings, ONCEPOOL_GRACE="3600")
    steps.send(kind, "first", "k", 1, **payload)
    steps.send("step", "second", "k", 2)
    eventually(lambda: bench.said()["in_hand"] == 2, WAIT, lambda: old.log)
    eventually(lambda: steps.entries["first"] == 1, WAIT, lambda: old.log)
    old.process.send_signal(signal.SIGTERM)
    old.says("draining")
    new = bench.start(**steps.settings, ONCEPOOL_DATABASE_LOCK_TIMEOUT="1")
    new.says("reading again what was not finished")
    return old, new


def test_what_follows_a_call_waits_for_its_end(bench: Bench, steps: Steps, tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    old, new = handed_over(bench, steps, "charge", ends=str(ends))
    # Whatever comes of other keys runs meanwhile, and the new owner is long done with its look.
    for number in range(3):
        steps.send("step", f"other-{number}", "other", number)
        assert bench.client.wait(f"other-{number}", WAIT).state == "done"
    assert steps.entries["second"] == 0, new.log
    ends.touch()
    assert old.process.wait(WAIT) == 0
    assert bench.client.wait("second", WAIT).state == "done"
    assert new.stop() == 0
    assert steps.entries["first"] == steps.entries["second"] == 1


def test_a_stop_does_not_wait_for_a_call_elsewhere(
    bench: Bench, steps: Steps, tmp_path: Path
) -> None:
    """It is the next owner's, in its order."""
    ends = tmp_path / "ends"
    old, new = handed_over(bench, steps, "charge", ends=str(ends))
    steps.send("step", "other", "other", 1)
    assert bench.client.wait("other", WAIT).state == "done"
    assert new.stop() == 0
    assert old.alive
    third = bench.start(**steps.settings)
    third.says("reading again what was not finished")
    assert steps.entries["second"] == 0, third.log
    ends.touch()
    assert old.process.wait(WAIT) == 0
    assert bench.client.wait("second", WAIT).state == "done"
    assert third.stop() == 0
    assert steps.entries["first"] == steps.entries["second"] == 1
