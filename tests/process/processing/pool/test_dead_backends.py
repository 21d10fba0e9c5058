"""A dead worker's database session that does not end holds up nothing but its own requests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.support.backends import stopped
from tests.support.waiting_rows import WaitingRows
from tests.support.workers import Workers

Make = Callable[..., Workers]
SOON = 20.0
"""Seconds that what is not concerned may take; a single try to end the session took 30."""


def names(word: str, count: int) -> list[str]:
    return [f"{word}-{n}" for n in range(count)]


def done(workers: Workers) -> set[str]:
    return {name for name, state in workers.states().items() if state == ("done", "ok")}


def victim(workers: Workers) -> tuple[int, int]:
    """A worker that has requests in hand: its pid, and its server process's."""
    found = next(w for w in workers.supervisor._pool.workers.values() if w.chunks)
    return workers.supervisor._processes.pid(found.number), found.backends[-1][0]


@pytest.mark.long
def test_fresh_requests(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workers = make(workers=2)
    workers.start()
    workers.warm(30)
    told, go_on = tmp_path / "told", tmp_path / "go-on"
    workers.submit(*names("held", 12), do=f"tell {told} await {go_on}")
    workers.until(told.exists)
    pid, backend = victim(workers)
    with stopped(backend):
        os.kill(pid, signal.SIGKILL)
        go_on.touch()
        workers.until(lambda: pid not in workers.pids)
        workers.submit(*names("other", 300))
        workers.until(lambda: done(workers) >= set(names("other", 300)), SOON)
        workers.until(lambda: workers.supervisor._pool.lanes.kept_back.unended)
        held = set(names("held", 12))
        workers.until(lambda: workers.supervisor.in_hand == len(held - done(workers)))
        workers.turn()
        [line] = [text for r in caplog.records if "does not end" in (text := r.getMessage())]
        for fact in (f"'backend_pid': {backend}", "'requests': ", "'worker': ", "held-"):
            assert fact in line
        assert "pg_stat_activity" in line, "what to do"
    workers.finish()
    assert done(workers) >= {*names("held", 12), *names("other", 300)}
    workers.check_effects()


@pytest.mark.long
def test_a_stop_leaves_them(make: Make, tmp_path: Path) -> None:
    """Once the workers are gone nothing is in hand but what waits for the session."""
    workers = make(workers=2)
    workers.start()
    workers.warm(30)
    told, go_on = tmp_path / "told", tmp_path / "go-on"
    workers.submit(*names("held", 12), do=f"tell {told} await {go_on}")
    workers.until(told.exists)
    supervisor, (pid, backend) = workers.supervisor, victim(workers)
    with stopped(backend):
        os.kill(pid, signal.SIGKILL)
        go_on.touch()
        workers.until(lambda: pid not in workers.pids)
        workers.until(lambda: 0 < supervisor.in_hand == supervisor.kept_back)
        supervisor.refuse_unstarted("shutdown")
        workers.until(lambda: not supervisor.alive, SOON)
        workers.until(lambda: 0 < supervisor.in_hand == supervisor.kept_back, SOON)
    workers.finish()


def test_rows_of_the_waiting_queue_are_claimed_on(
    make: Make, rows: WaitingRows, tmp_path: Path
) -> None:
    """Although those that wait for the session are as many as would otherwise be enough."""
    workers = make(workers=2)
    workers.start()
    workers.warm(30)
    told, go_on = tmp_path / "told", tmp_path / "go-on"

    def add(do: str, *ids: str) -> None:
        with rows.connection.transaction():
            payload = orjson.dumps({"table": workers.table, "do": do})
            rows.add(*ids, type="fragile", payload=payload)

    add(f"tell {told} await {go_on}", *names("held", 100))
    workers.until(told.exists)
    assert len(workers.supervisor._pool.wants.hand) == 100
    pid, backend = victim(workers)
    with stopped(backend):
        os.kill(pid, signal.SIGKILL)
        go_on.touch()
        workers.until(lambda: pid not in workers.pids)
        add("", *names("other", 300))
        workers.until(lambda: done(workers) >= set(names("other", 300)), SOON)
        assert workers.supervisor.in_hand > 0
    workers.until(lambda: done(workers) >= {*names("held", 100), *names("other", 300)})
    workers.check_effects()
