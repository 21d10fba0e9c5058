"""A request that polls for days: statuses of runs that `v` has no room for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import orjson

from feedback.contract.states import MAX_RUN
from tests.support.waiting_rows import WaitingRows
from tests.support.workers import Workers

Make = Callable[..., Workers]


def test_statuses_go_on_beyond_the_last_run_number(
    make: Make, rows: WaitingRows, tmp_path: Path
) -> None:
    workers = make()
    workers.start()
    found = tmp_path / "found"
    payload = orjson.dumps({"table": workers.table, "do": f"retry until {found}"})
    rows.add("polls", type="fragile", payload=payload, run=MAX_RUN)
    told: set[datetime | None] = set()

    def tells_more() -> bool:
        [status] = workers.store.read(["polls"])
        if status is not None and status.state == "waiting":
            told.add(status.retry_at)
        return len(told) >= 3

    workers.until(tells_more)
    [run] = rows.columns("polls", "run")
    assert run >= MAX_RUN + 3
    found.touch()
    workers.until(lambda: workers.status("polls") == ("done", "ok"))
    workers.check_effects()
