"""Workers that ran well and can't be started any more: nothing is taken that nobody could run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

BOUND = 40


@pytest.fixture
def bench(bench: Bench, tmp_path: Path) -> Bench:
    bench.environment |= {
        "ONCEPOOL_APP": "tests.support.limited_app:app",
        "ONCEPOOL_MAX_IN_HAND": str(BOUND),
        "NO_START": str(tmp_path / "no-start"),
    }
    bench.query(f"CREATE TABLE {bench.table}_notes (id text, type text, what text, at timestamptz)")
    return bench


def submit(bench: Bench, count: int) -> set[str]:
    payload = {"table": bench.table, "seconds": 0.0}
    ids = {bench.client.submit("other", payload) for _ in range(count)}
    bench.client.flush(30)
    return ids


@pytest.mark.long
def test_intake_is_closed_and_the_instance_not_ready_until_a_worker_starts(bench: Bench) -> None:
    instance = bench.start()
    ids = submit(bench, 5)
    eventually(lambda: bench.done() == 5, WAIT)
    # The main process tells how it stands once a second.
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT)

    Path(bench.environment["NO_START"]).touch()
    for pid in instance.workers():
        os.kill(pid, signal.SIGKILL)
    instance.says("the licence server refused", 2)
    eventually(lambda: instance.health("/readyz")[1]["workers"] is False, WAIT)
    status, checks = instance.health("/readyz")
    assert (status, [name for name, ok in checks.items() if not ok]) == (503, ["workers"])
    assert instance.health("/livez")[0] == 200
    eventually(lambda: bench.said()["paused"] == ["workers"], WAIT)

    late = submit(bench, 3 * BOUND)
    # Two more tries, which take longer than a poll and a commit would.
    instance.says(
        "the licence server refused", instance.log.count("the licence server refused") + 2
    )
    assert bench.waiting() == len(late), "offsets were committed of what nobody can run"
    assert bench.said()["in_hand"] == 0
    assert instance.alive

    Path(bench.environment["NO_START"]).unlink()
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT)
    eventually(lambda: bench.done() == len(ids | late), WAIT, lambda: instance.log)
    bench.check_books(ids | late)
