"""Rows of the waiting queue through real workers and a real maintenance process, without Kafka."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from feedback.contract.record import read_again
from feedback.journal.claims import LEASE
from processing.ipc.frames import LimitsFound
from processing.pool import standstill
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows
from tests.support.workers import Workers

Make = Callable[..., Workers]


def add(rows: WaitingRows, workers: Workers, *ids: str, do: str = "", **more: Any) -> None:
    """Waiting rows of the app's type."""
    payload = orjson.dumps({"table": workers.table, "do": do})
    rows.add(*ids, type="fragile", payload=payload, **more)


def names(word: str, count: int) -> list[str]:
    return [f"{word}-{n}" for n in range(count)]


def done(workers: Workers) -> set[str]:
    return {name for name, state in workers.states().items() if state == ("done", "ok")}


def running(workers: Workers) -> bool:
    return any(look is not None for look in workers.supervisor._at_work.slots.values())


def child(workers: Workers) -> int:
    """The maintenance process's pid."""
    maintenance = workers.supervisor.maintenance._child
    assert maintenance is not None
    return maintenance.pid


def test_due_rows_run_beside_fresh_requests(make: Make, rows: WaitingRows) -> None:
    workers = make(workers=2)
    add(rows, workers, *names("due", 600))
    workers.start()
    workers.submit(*names("fresh", 300))
    wanted = {*names("due", 600), *names("fresh", 300)}
    workers.until(lambda: done(workers) == wanted)
    workers.until(lambda: workers.supervisor.in_hand == 0)
    assert rows.columns("due-5", "run", "attempt", "crashes", "token", "due_in", "payload") == (
        1, 1, 0, None, None, None,
    )  # fmt: skip
    workers.check_effects()


def test_a_row_that_becomes_due_runs_then(make: Make, rows: WaitingRows) -> None:
    workers = make()
    workers.start()
    add(rows, workers, "later", due_in=3600.0)
    add(rows, workers, "now")
    workers.until(lambda: done(workers) == {"now"})
    workers.finish()
    assert workers.states()["later"] == ("waiting", "delayed")
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = now() WHERE id = 'later'")
    workers.until(lambda: done(workers) == {"now", "later"})
    workers.check_effects()


def test_a_row_that_kills_two_workers_is_dead(make: Make, rows: WaitingRows) -> None:
    workers = make()
    workers.start()
    workers.warm()
    add(rows, workers, *names("good", 5))
    add(rows, workers, "bad", do="exit")
    workers.until(lambda: workers.states()["bad"] == ("dead", "worker_died"))
    workers.until(lambda: done(workers) == set(names("good", 5)))
    assert rows.columns("bad", "run", "crashes", "token", "due_in") == (2, 2, None, None)
    assert rows.query(
        f"SELECT run, code, error FROM {rows.schema}.attempts WHERE request_id = 'bad' ORDER BY run"
    ) == [(n, "worker_died", "its worker died while it ran (exit code 9)") for n in (1, 2)]
    workers.finish()
    assert workers.supervisor.stats().deaths == 2
    workers.check_effects()


@pytest.mark.long
def test_crashes_of_a_row_count_over_instances(make: Make, rows: WaitingRows) -> None:
    """It killed a worker elsewhere once; its worker's death here is the second.

    What instances died of while they had it nobody knows: it takes more of those.
    """
    workers = make()
    workers.start()
    workers.warm()
    add(rows, workers, "bad", do="exit", token="elsewhere:7", run=2, crashes=1)
    add(rows, workers, "lost", do="exit", token="elsewhere:8", run=6, lost_claims=5)
    add(rows, workers, "well", token="elsewhere:9", run=5, lost_claims=4)
    workers.until(lambda: workers.states()["bad"] == ("dead", "worker_died"))
    workers.until(lambda: workers.states()["lost"] == ("dead", "instance_died"))
    workers.until(lambda: workers.states()["well"] == ("done", "ok"))
    counts = [rows.columns(name, "crashes", "lost_claims") for name in ("bad", "lost", "well")]
    assert counts == [(2, 0), (0, 0), (0, 0)]
    workers.finish()
    # The others are not run again at all, or with success.
    assert workers.supervisor.stats().deaths == 1
    workers.check_effects()


@pytest.mark.long  # the chaos run shows it too
def test_a_worker_that_is_killed_loses_no_claimed_row(
    make: Make, rows: WaitingRows, tmp_path: Path
) -> None:
    workers = make(workers=2)
    workers.start()
    workers.warm()
    ids = names("id", 300)
    add(rows, workers, *ids[:-1], do="sleep 0.005")
    add(rows, workers, ids[-1], do=f"await {tmp_path / 'go-on'}", due_in=0.0)
    workers.until(lambda: len(done(workers)) > 20)
    os.kill(workers.pids[0], signal.SIGKILL)
    (tmp_path / "go-on").touch()
    workers.until(lambda: done(workers) == set(ids))
    workers.check_effects()
    [crashes] = rows.query(f"SELECT sum(crashes)::int FROM {rows.schema}.requests")[0]
    assert crashes <= 1


def test_a_maintenance_that_hangs_at_the_end_is_killed_and_counted(make: Make) -> None:
    workers = make()
    workers.supervisor.start_maintenance()
    workers.until(lambda: workers.supervisor.maintenance.ready)
    os.kill(child(workers), signal.SIGSTOP)
    workers.supervisor.close(0.5)
    assert workers.supervisor.killed == 1


def test_a_maintenance_that_dies_doubts_no_work_in_hand(make: Make, rows: WaitingRows) -> None:
    workers = make()
    workers.start()
    workers.warm()
    ids = names("id", 12)
    add(rows, workers, *ids, do="sleep 0.4")
    workers.until(lambda: running(workers))
    dead = child(workers)
    rows.query(
        f"UPDATE {rows.schema}.requests SET due_at = now() + interval '4 s' WHERE token IS NOT NULL"
    )
    os.kill(dead, signal.SIGKILL)
    workers.until(lambda: workers.supervisor.maintenance.alive and child(workers) != dead)

    def leases() -> list[float]:
        wanted = (
            "SELECT extract(epoch FROM lease_until - now())::float8"
            f" FROM {rows.schema}.requests WHERE token IS NOT NULL"
        )
        return [left for (left,) in rows.query(wanted)]

    # The new one has been told what is in hand.
    workers.until(lambda: not leases() or min(leases()) > LEASE - 10)
    workers.until(lambda: done(workers) == set(ids))
    [crashes] = rows.query(f"SELECT sum(crashes)::int FROM {rows.schema}.requests")[0]
    assert crashes == 0
    add(rows, workers, "later")
    workers.until(lambda: "later" in done(workers))
    workers.check_effects()


@pytest.mark.parametrize("how", ["alone", "in one chunk", "limited"])
def test_claimed_rows_that_have_not_started_as_a_stop_begins_are_given_back(
    make: Make, rows: WaitingRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """They are others' to run at once, and none is begun that the grace would then cut short."""
    monkeypatch.setattr(standstill, "PATIENCE", math.inf)  # which would give them back as well
    workers = make(workers=1 + (how == "limited"))
    workers.start()
    if how == "in one chunk":
        workers.warm(20)
    if how == "limited":
        workers.supervisor._pool.limit(LimitsFound(1, None, {"fragile": (None, 1, 1, 1)}, []))
    entered, go_on = tmp_path / "entered", tmp_path / "go-on"
    add(rows, workers, *names("due", 3), do=f"tell {entered} await {go_on}")
    workers.until(entered.exists)
    workers.until(lambda: workers.supervisor.in_hand == 3)
    workers.supervisor.stop_claims()
    free = f"SELECT id FROM {rows.schema}.requests WHERE token IS NULL AND due_at <= now()"
    workers.until(lambda: len(rows.query(free)) == 2)
    assert workers.supervisor.in_hand == 1
    go_on.touch()
    workers.until(lambda: workers.supervisor.in_hand == 0)
    assert len(done(workers)) == 1
    totals = f"SELECT sum(crashes)::int, sum(lost_claims)::int FROM {rows.schema}.requests"
    assert rows.query(totals) == [(0, 0)]
    workers.check_effects()


def test_at_shutdown_claimed_rows_are_given_back_and_fresh_ones_parked(
    make: Make, rows: WaitingRows, tmp_path: Path
) -> None:
    workers = make()
    workers.start()
    workers.warm(20)
    due, fresh = names("due", 6), names("fresh", 6)
    entered = tmp_path / "entered"
    add(rows, workers, *due, do=f"tell {entered} await {tmp_path / 'go-on'}")
    workers.until(entered.exists)
    workers.submit(*fresh)
    workers.supervisor.stop_claims()
    workers.supervisor.refuse_unstarted("shutdown")
    workers.until(lambda: workers.supervisor.in_hand == 1)
    (tmp_path / "go-on").touch()
    workers.until(lambda: workers.supervisor.in_hand == 0 and not workers.pids)
    workers.supervisor.close(60)
    finished = done(workers)
    assert len(finished) == 1
    left = {*due, *fresh} - finished
    states = workers.states()
    assert {states[name][0] for name in left} == {"waiting"}
    assert {states[name] for name in left & set(fresh)} == {("waiting", "parked")}
    for name in left:
        known = rows.columns(name, "token", "crashes", "lost_claims", "due_at <= now()")
        assert known == (None, 0, 0, True)
    # Redis gets its statuses after the row's commit.
    eventually(lambda: workers.status("fresh-5") == ("waiting", "parked"))
    another = make()
    another.start()
    another.until(lambda: done(another) == {*due, *fresh})
    another.check_effects()


def test_what_is_killed_at_the_end_is_parked_or_given_back(
    make: Make, rows: WaitingRows, tmp_path: Path
) -> None:
    workers = make(workers=2)
    workers.start()
    due, fresh = tmp_path / "due", tmp_path / "fresh"
    add(rows, workers, "due", do=f"tell {due} hang")
    workers.until(due.exists)
    workers.submit("fresh", do=f"tell {fresh} hang")
    workers.until(fresh.exists)
    workers.supervisor.stop_claims()
    workers.supervisor.refuse_unstarted("shutdown")
    workers.supervisor.terminate()
    workers.supervisor.kill()
    workers.until(lambda: workers.supervisor.in_hand == 0)
    assert workers.states() == {"due": ("waiting", "delayed"), "fresh": ("waiting", "parked")}
    assert rows.columns("fresh", "crashes", "run", "token") == (0, 1, None)
    # Its kill is no crash, and its worker's session is gone before another may have it.
    eventually(lambda: rows.columns("due", "crashes", "run", "token") == (0, 1, None))
    # Where a handler must not be entered twice, both are not: they were begun.
    for name in ("fresh", "due"):
        assert rows.columns(name, "lost_claims") == (1,)
    assert workers.query(f"SELECT * FROM {workers.table}") == []


def test_paused_types_are_given_back_and_parked(make: Make, rows: WaitingRows) -> None:
    workers = make()
    workers.start()
    pool = workers.supervisor._pool
    pool.limit(LimitsFound(1, None, {}, ["fragile", "fragile.sum"]))
    workers.submit("fresh")
    workers.submit("sum", kind="fragile.sum")
    # Of pure computation nobody knows whether it is done.
    again = read_again(workers.record("sum again", "", "fragile.sum"), begun=False)
    workers.supervisor.submit([again])
    add(rows, workers, "due")
    workers.until(lambda: workers.supervisor.in_hand == 0 and len(workers.states()) == 4)
    # Others are claimed meanwhile.
    payload = orjson.dumps({"table": workers.table, "do": ""})
    rows.add("other", type="fragile.batch", payload=payload)
    workers.until(lambda: done(workers) == {"other"})
    workers.finish()
    states = workers.states()
    assert (states["fresh"], states["due"]) == (("waiting", "parked"), ("waiting", "delayed"))
    assert rows.query(f"SELECT count(token)::int FROM {rows.schema}.requests") == [(0,)]
    pool.limit(LimitsFound(2, None, {}, []))
    workers.until(lambda: done(workers) == {"fresh", "due", "other"})
    ended = {"sum": ("done", "ok"), "sum again": ("failed", "instance_died")}
    workers.until(lambda: {name: workers.status(name) for name in ended} == ended)
