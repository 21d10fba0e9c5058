"""Handlers that come by the clock, under the whole service and its commands."""

from __future__ import annotations

import os
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import Commands, answer
from tests.support.service import WAIT, Bench, Instance
from tests.support.waiting import eventually

PAUSE = timedelta(seconds=2.5)


def test_ticks_run_whatever_dies_and_operators_pause_them(bench: Bench, oncepool: Commands) -> None:
    def back(hours: int) -> None:
        bench.query(
            f"UPDATE {bench.schema}.schedules SET decided_until = now() - interval '{hours} hours'"
        )

    def ticks() -> int:
        [row] = answer(oncepool("schedules", "list", "--json"))
        return int(row["ticks"])

    # Half an hour from now and every hour before and after: never while the test runs.
    cron = f"{(datetime.now(UTC).minute + 30) % 60} * * * *"
    bench.query(
        f"INSERT INTO {bench.schema}.schedules (name, type, cron, tz, missed, decided_until) VALUES"
        f" ('hourly', 'report', '{cron}', 'UTC', 'all', now())"
    )
    back(2)  # an instance that starts finds something to make up for
    app = {"ONCEPOOL_APP": "tests.support.periodic_app:app", "TEST_CRON": cron}
    instance, other = (bench.start(wait=False, **app) for _ in range(2))
    for one in (instance, other):
        one.says("] running")
    eventually(lambda: ticks() == 2, WAIT, lambda: instance.log)
    [row] = answer(oncepool("schedules", "list", "--json"))
    assert (row["live"], row["paused_at"]) == (True, None)
    status = bench.client.wait(row["last_id"], WAIT)
    assert status.state == "done"
    assert str(status.result).startswith("hourly ")

    paused = answer(oncepool("schedules", "pause", "hourly", "--why", "no paper", "--json"))
    assert (paused[0]["paused_by"], paused[0]["paused_why"]) == ("ann", "no paper")
    back(3)
    assert "paused" in oncepool("schedules", "list").stdout
    assert answer(oncepool("schedules", "resume", "hourly", "--json"))[0]["paused_at"] is None
    assert ticks() == 2  # what fell into the pause is not made up for
    assert oncepool("schedules", "resume", "none").exit_code == 4
    assert oncepool("schedules", "drop", "hourly").exit_code == 6
    assert oncepool("limits", "pause", "none", "--why", "no ink").exit_code == 0
    assert bench.query(
        f"SELECT what, name, action, who, why FROM {bench.schema}.operator_changes ORDER BY id"
    ) == [
        ("schedule", "hourly", "pause", "ann", "no paper"),
        ("schedule", "hourly", "resume", "ann", None),
        ("limits", "none", "pause", "ann", "no ink"),
    ]

    # The next maintenance process is told what the app has; the other instance is gone.
    other.kill()
    [maintenance] = set(instance.children()) - set(instance.workers())
    os.kill(maintenance, signal.SIGKILL)
    back(5)  # three that were not made before; the others were
    eventually(lambda: ticks() == 5, WAIT, lambda: instance.log)
    runs = f"SELECT state, run FROM {bench.schema}.requests"
    eventually(lambda: bench.query(runs) == [("done", 1)] * 5, WAIT, lambda: str(bench.query(runs)))
    assert instance.stop() == 0


@pytest.mark.long  # those above do, too, but look at moments of their own, and run none when killed
def test_each_tick_runs_once_over_two_instances_of_which_one_is_killed(
    bench: Bench, oncepool: Commands, tmp_path: Path
) -> None:
    """Both look at each second, when a tick is due."""
    hold = tmp_path / "hold"
    app = {"ONCEPOOL_APP": "tests.support.ticking_app:app", "TEST_TABLE": bench.table}
    both = [bench.start(wait=False, TEST_HOLD=str(hold), **app) for _ in range(2)]
    for one in both:
        one.says("] running")
    more_are_done(bench, 3)

    hold.touch()
    [[parent, _], *_] = eventually(lambda: [s.split() for s in hold.read_text().splitlines()], WAIT)
    [killed] = [one for one in both if one.process.pid == int(parent)]
    [lives] = [one for one in both if one is not killed]
    killed.kill()
    hold.unlink()
    end_leases(bench, killed)
    more_are_done(bench, 3)

    assert oncepool("schedules", "pause", "each-second", "--why", "enough").exit_code == 0
    [[paused]] = bench.query("SELECT clock_timestamp()")
    eventually(lambda: bench.query("SELECT clock_timestamp() > %s", paused + PAUSE)[0][0], WAIT)
    eventually(lambda: set(bench.states()) == {"done"}, WAIT, lambda: lives.log)
    assert lives.stop() == 0
    times = sorted(datetime.fromisoformat(id_.partition("@")[2]) for id_ in all_ids(bench))
    assert times[-1] <= paused
    seconds = [times[0] + timedelta(seconds=n) for n in range(len(times))]
    assert times == seconds, "some tick became no request"
    bench.check_books(all_ids(bench))


def end_leases(bench: Bench, killed: Instance) -> None:
    """As if the time of its claims had passed: what it ran, and what was to run there."""
    [name] = re.findall(r"running .*instance=(\S+)", killed.log)
    bench.query(
        f"UPDATE {bench.schema}.requests SET due_at = now(), lease_until = now()"
        " WHERE state = 'waiting' AND starts_with(token, %s)",
        name,
    )


def all_ids(bench: Bench) -> set[str]:
    return {id_ for (id_,) in bench.query(f"SELECT id FROM {bench.schema}.requests")}


def more_are_done(bench: Bench, more: int) -> None:
    """Of ticks that are due from now on."""
    [[now]] = bench.query("SELECT clock_timestamp()")
    query = f"SELECT id FROM {bench.schema}.requests WHERE state = 'done' AND created_at > %s"

    def logs() -> str:
        return "\n".join(one.log for one in bench.instances)

    eventually(lambda: len(bench.query(query, now)) >= more, WAIT, logs)
