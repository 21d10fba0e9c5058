"""Steps of an idle request, by time stamps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.stamps import (
    COMMIT_SENT,
    FETCHED,
    READ,
    STEPS,
    Stamps,
    durations,
    stamps_in,
    summary,
)

ROOT = Path(__file__).parents[3]


def stamps_of(*requests: float) -> dict[str, list[float]]:
    """Each request passes a step every 0.1 s."""
    return {
        step: [begin + 0.1 * (number + 1) for begin in requests]
        for number, step in enumerate(STEPS)
    }


def test_a_step_takes_from_the_one_before_it_to_its_own_stamp() -> None:
    found = durations(2.0, 3.0, stamps_of(1.0, 2.0, 3.0))
    assert found is not None
    assert list(found) == [*STEPS, READ]
    assert all(found[step] == pytest.approx(0.1) for step in STEPS)
    assert found[READ] == pytest.approx(0.2)
    assert sum(found.values()) == pytest.approx(1.0)


def test_what_happened_before_its_turn_is_of_another_request() -> None:
    stamps = stamps_of(2.0)
    stamps[COMMIT_SENT].insert(0, 2.05)  # a commit that was on its way already
    found = durations(2.0, 3.0, stamps)
    assert found is not None
    assert found[COMMIT_SENT] == pytest.approx(0.1)


def test_a_request_without_one_of_its_stamps_tells_nothing() -> None:
    assert durations(2.0, 3.0, {**stamps_of(2.0), FETCHED: []}) is None
    assert durations(2.0, 2.5, stamps_of(2.0)) is None  # of the next one


def test_the_slowest_of_a_hundred_are_told_beside_the_median() -> None:
    quick = dict.fromkeys((*STEPS, READ), 0.001)
    slow = {**quick, COMMIT_SENT: 0.05}
    rows = {row["step"]: row for row in summary([*[quick] * 199, slow])}
    assert rows[FETCHED] == {
        "step": FETCHED, "median": pytest.approx(1), "slow": pytest.approx(1),
    }  # fmt: skip
    assert (rows[COMMIT_SENT]["median"], rows[COMMIT_SENT]["slow"]) == pytest.approx((1, 25.5))
    assert summary([]) == []


def test_a_call_leaves_a_stamp_before_or_after_it(tmp_path: Path) -> None:
    stamps = Stamps(tmp_path)
    owner = SimpleNamespace(double=lambda number: 2 * number)
    stamps.after(owner, "double", FETCHED, lambda number: number > 1)
    assert [owner.double(n) for n in (1, 2, 3)] == [2, 4, 6]
    stamps.before(owner, "double", COMMIT_SENT)
    assert owner.double(5) == 10
    found = stamps_in(tmp_path)
    assert (len(found[FETCHED]), len(found[COMMIT_SENT])) == (3, 1)
    assert found[COMMIT_SENT][0] <= found[FETCHED][-1]


WATCHED = """
import sys
from pathlib import Path
from benchmarks import stamps

stamps.watch_main(Path(sys.argv[1]))
stamps.watch_worker(Path(sys.argv[1]))
from consumer.intake import kafka
kafka.records_of([])
"""


def test_what_is_stamped_is_there(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WATCHED, str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert len(stamps_in(tmp_path)[FETCHED]) == 1
