"""Handlers that come by the clock, under the whole service and its commands."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime

from tests.support.commands import Commands, answer
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually


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
    instance = bench.start(ONCEPOOL_APP="tests.support.periodic_app:app", TEST_CRON=cron)
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

    # The next maintenance process is told what the app has.
    [maintenance] = set(instance.children()) - set(instance.workers())
    os.kill(maintenance, signal.SIGKILL)
    back(5)  # three that were not made before; the others were
    eventually(lambda: ticks() == 5, WAIT, lambda: instance.log)
    assert instance.stop() == 0
