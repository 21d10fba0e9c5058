"""The clocks of an instance's processes are minutes from the database's."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.service import WAIT, Bench

PAUSE = 1.4
"""Seconds: those of the app, but for what a reading of a clock may be wrong by."""


@pytest.mark.parametrize("seconds", [-600, 600], ids=["behind", "ahead"])
def test_pauses_windows_and_follow_ups_are_as_long_as_they_say(
    bench: Bench, tmp_path: Path, seconds: int
) -> None:
    noted = tmp_path / "entries"
    bench.start(
        ONCEPOOL_APP="tests.support.wrong_clock_app:app",
        TEST_CLOCK=str(seconds),
        TEST_ENTRIES=str(noted),
    )
    begun = time.monotonic()
    again = [bench.client.submit(kind, None) for kind in ("shaky", "busy", "pure")]
    first, last = (bench.client.submit("recount", None) for _ in range(2))
    order = bench.client.submit("order", None)
    ends = {name: bench.client.wait(name, WAIT) for name in (*again, first, last, order)}
    follow_up = ends[order].result
    assert bench.client.wait(follow_up, WAIT).state == "done"

    entered = entries(noted)
    for name in again:
        assert ends[name].state == "done"
        assert len(entered[name]) == 3
        assert min(later - earlier for earlier, later in pairwise(entered[name])) > PAUSE
    # Either is the newer one: they were sent within what a reading of a clock may be wrong by.
    assert {ends[first].state, ends[last].state} == {"superseded", "done"}
    (ran,) = (name for name in (first, last) if ends[name].state == "done")
    assert entered[ran][0] - begun > PAUSE


def entries(noted: Path) -> dict[str, list[float]]:
    """When each request was entered."""
    found: dict[str, list[float]] = {}
    for line in noted.read_text().splitlines():
        name, at = line.split()
        found.setdefault(name, []).append(float(at))
    return found
