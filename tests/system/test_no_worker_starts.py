"""Workers that ran well and can't be started any more: nothing is taken that nobody could run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually
from tests.system.test_limits import command

BOUND = 40
PARTITIONS = 4


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


@pytest.mark.long
def test_an_instance_whose_workers_cannot_start_keeps_nothing_of_a_total(
    bench: Bench, tmp_path: Path
) -> None:
    """What waits there does not count as needed, so another one runs its own."""
    bench.environment |= {"ONCEPOOL_WORKERS": "2", "ONCEPOOL_ORDERING": "none"}
    gates = [tmp_path / "no-0", tmp_path / "no-1"]
    both = [bench.start(NO_START=str(gate)) for gate in gates]
    bench.shared_out(2, PARTITIONS)
    command(bench, "limits", "set", "few", "--total", "1")
    shares = lambda: {f["pid"]: f["at_once"].get("few") for f in bench.facts()}  # noqa: E731
    eventually(lambda: sorted(shares().values(), key=str) == [0, 1], WAIT)
    slow = {"table": bench.table, "seconds": 3.0}
    for n in range(6):
        bench.client.submit("few", slow, request_id=f"slow-{n}", key="one partition")
    bench.client.flush(30)
    busy = lambda: [f for f in bench.facts() if f["at_once"]["few"] and f["in_hand"] > 3]  # noqa: E731
    [holder] = eventually(busy, WAIT)
    bad = next(n for n, instance in enumerate(both) if instance.process.pid == holder["pid"])
    gates[bad].touch()
    for pid in both[bad].workers():
        os.kill(pid, signal.SIGKILL)
    both[bad].says("the licence server refused", 2)
    for n in range(8):
        payload = {"table": bench.table, "seconds": 0.0}
        bench.client.submit("few", payload, request_id=f"quick-{n}", key=f"{n}")
    bench.client.flush(30)
    quick = f"SELECT count(*) FROM {bench.table} WHERE id LIKE 'quick-%'"
    eventually(lambda: bench.query(quick)[0][0] > 0, WAIT, lambda: str(bench.facts()))

    gates[bad].unlink()
    ended = lambda: bench.states().get("done", 0) + bench.states().get("dead", 0) == 14  # noqa: E731
    eventually(ended, WAIT, lambda: str(bench.states()))
