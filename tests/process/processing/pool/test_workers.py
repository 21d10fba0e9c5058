"""Children that die, grow, hang and don't start, on real services."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson
import psycopg
import pytest

from feedback.journal.parking import ParkedRequest, park
from feedback.journal.rows import headers_json
from processing.ipc.progress import Running
from processing.pool.actions import Signal
from processing.worker.outages import HASTE, PATIENCE
from tests.support.descriptors import no_more_descriptors
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.support.workers import Workers

Make = Callable[..., Workers]
MIB = 2**20


@pytest.fixture
def mood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file that says how the app fails to start, once it is there."""
    path = tmp_path / "mood"
    monkeypatch.setenv("FRAGILE", str(path))
    return path


def names(word: str, count: int = 20) -> list[str]:
    return [f"{word}-{n}" for n in range(count)]


LIKE = ("segfault", "exit", "eat", "SELECT pg_sleep(100)")
"""Ends that others of HARM have, too."""
HARM = {
    "segfault": ("dead", "worker_died"),
    "exit": ("dead", "worker_died"),
    "close": ("dead", "worker_died"),
    "hang": ("failed", "timeout"),
    "eat": ("failed", "handler_error"),
    "SELECT pg_sleep(100)": ("failed", "timeout"),
}


@pytest.mark.parametrize(
    "do",
    [pytest.param(do, marks=pytest.mark.long) if do in LIKE else do for do in HARM],
    ids=lambda do: do.split("(")[0].split()[-1],
)
def test_the_neighbours_in_the_chunk_are_unharmed(make: Make, do: str) -> None:
    workers = make(worker_memory_limit=512 * MIB)
    workers.start()
    workers.warm()
    before, after = names("before"), names("after")
    bad = workers.record("bad", do, **({"ce_timeout": "1"} if "timeout" in HARM[do] else {}))
    workers.submit(*before)
    workers.supervisor.submit([bad])
    workers.submit(*after)
    workers.finish()
    states = workers.states()
    ended = states.pop("bad")
    # A process that has no descriptor left may make new ones before it notices.
    assert ended == HARM[do] or (do == "close" and ended == ("failed", "handler_error"))
    assert states == dict.fromkeys([*before, *after], ("done", "ok"))
    workers.until(lambda: workers.status("bad") == ended)
    # Also of those that ran just before it: their answers are out before it runs alone.
    workers.until(lambda: {workers.status(i) for i in [*before, *after]} == {("done", "ok")})
    workers.check_effects()
    assert (
        workers.query("SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(100)'") == []
    )


@pytest.mark.parametrize("do", ["hang", pytest.param("segfault", marks=pytest.mark.long)])
def test_a_payload_that_does_harm_while_it_is_read_is_found_out(make: Make, do: str) -> None:
    workers = make(app="tests.support.fragile_read_app:app")
    workers.start()
    workers.warm(kind="fragile.read")
    before, after = names("before"), names("after")
    workers.submit(*before, kind="fragile.read")
    workers.submit("bad", do=do, kind="fragile.read")
    workers.submit(*after, kind="fragile.read")
    workers.finish()
    states = workers.states()
    assert states.pop("bad") == HARM[do]
    assert states == dict.fromkeys([*before, *after], ("done", "ok"))
    workers.check_effects()


def test_others_do_not_wait_for_all_requests_of_a_type_that_kills(make: Make) -> None:
    workers = make()
    workers.start()
    workers.warm()
    workers.warm(kind="fragile.marked")
    ids, bad = names("id"), names("bad", 4)
    records = [workers.record(i, "") for i in ids]
    for place, name in enumerate(bad):
        records.insert(5 * place, workers.record(name, "exit", "fragile.marked"))
    workers.supervisor.submit(records)
    workers.until(lambda: not set(ids) - workers.states().keys())
    # Else about one of them runs in each worker's life.
    assert workers.supervisor.stats().deaths <= 2
    workers.check_effects()


def test_one_worker_alone_keeps_what_is_behind_slow_ones_out_of_their_transaction(
    make: Make,
) -> None:
    """Nobody calls it back: it would run nowhere else."""
    workers = make(workers=1)
    workers.start()
    workers.warm()
    workers.submit(*names("id", 5), do="sleep 0.6")
    workers.until(workers.states)
    assert len(workers.states()) < 5
    workers.finish()
    assert workers.states() == dict.fromkeys(names("id", 5), ("done", "ok"))
    workers.check_effects()


def test_the_neighbours_in_a_batch_are_run_without_the_one_that_kills(make: Make) -> None:
    workers = make()
    workers.start()
    workers.warm(kind="fragile.batch")
    ids = names("id")
    records = [workers.record(i, "", "fragile.batch") for i in ids]
    records.insert(10, workers.record("bad", "exit", "fragile.batch"))
    workers.supervisor.submit(records)
    workers.finish()
    # Nobody can be blamed for the first death; alone, it kills twice.
    assert workers.supervisor.stats().deaths == 3
    states = workers.states()
    assert states.pop("bad") == ("dead", "worker_died")
    assert states == dict.fromkeys(ids, ("done", "ok"))
    workers.check_effects()


@pytest.mark.long
def test_a_connection_made_within_the_chunk_is_ended_with_its_worker(make: Make) -> None:
    workers = make()
    workers.start()
    workers.warm()
    [worker] = workers.supervisor._pool.workers.values()
    [(pid, _)] = worker.backends
    assert workers.query(f"SELECT pg_terminate_backend({pid}, 10000)") == [(True,)]
    workers.submit("late", do="SELECT pg_sleep(99)", ce_timeout="1")
    workers.finish()
    at_work = "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(99)'"
    assert workers.query(at_work) == [], "it was looked up before its statement had ended"
    assert workers.states()["late"] == ("failed", "timeout")


@pytest.mark.long
def test_a_stored_payload_that_hangs_who_compares_it_is_found_out(make: Make) -> None:
    workers = make()
    workers.start()
    workers.warm(kind="fragile.marked")
    far, at = datetime(2035, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    parcel = ParkedRequest(
        "id-3", "fragile.marked", "topic", 0, 900, at, far, 0, 0, None, None,
        orjson.dumps({"table": workers.table, "do": "hang"}), headers_json([]),
    )  # fmt: skip
    with psycopg.connect(workers.database, autocommit=True) as connection:
        assert park(connection, [parcel], "parked", schema=workers.schema).runs
    workers.submit(*names("id", 6), kind="fragile.marked")
    workers.finish()
    states = workers.states()
    assert states.pop("id-3") == ("waiting", "parked")
    assert set(states.values()) == {("done", "ok")}
    assert workers.status("id-3") == ("waiting", "parked")
    assert workers.supervisor.stats().deaths == 1


@pytest.mark.long  # the chaos run shows it too
def test_a_worker_that_was_killed_leaves_nothing_undone(make: Make) -> None:
    workers = make(workers=2)
    workers.start()
    workers.warm()
    ids = names("id", 200)
    workers.submit(*ids, do="sleep 0.005")
    victim = workers.pids[0]
    workers.until(lambda: looks(workers)[0])
    os.kill(victim, signal.SIGKILL)
    workers.finish()
    assert victim not in workers.pids
    assert workers.supervisor.stats().deaths == 1
    assert workers.states() == dict.fromkeys(ids, ("done", "ok"))
    workers.check_effects()


def test_a_slow_request_does_not_hold_up_what_waits_behind_it(make: Make, tmp_path: Path) -> None:
    workers = make(workers=2)
    workers.start()
    workers.warm()
    workers.submit("slow", do=f"await {tmp_path / 'go-on'}", ce_timeout="60")
    workers.submit(*names("quick", 60))
    workers.until(lambda: workers.supervisor.in_hand == 1)
    assert workers.states() == dict.fromkeys(names("quick", 60), ("done", "ok"))
    (tmp_path / "go-on").touch()
    workers.finish()
    assert workers.states()["slow"] == ("done", "ok")
    workers.check_effects()


@pytest.mark.long  # the test below replaces three
def test_a_worker_is_replaced_after_so_many_requests(make: Make) -> None:
    workers = make(worker_max_requests=50)
    workers.start()
    ids = names("id", 180)
    for wave in (1, 2, 3):
        workers.submit(*ids[60 * (wave - 1) : 60 * wave])
        workers.finish()
        # The next one is ready before this one goes.
        workers.until(lambda: len(workers.seen) == wave + 1 and len(workers.pids) == 1)  # noqa: B023 - called at once
    assert workers.supervisor.stats().deaths == 0
    assert workers.states() == dict.fromkeys(ids, ("done", "ok"))
    workers.check_effects()


def test_the_next_worker_is_ready_before_one_is_replaced_and_one_goes_at_a_time(
    make: Make,
) -> None:
    workers = make(workers=3, worker_max_requests=20)
    workers.start()
    fewest, ids = 3, list[str]()

    def turned(count: int) -> bool:
        nonlocal fewest
        fewest = min(fewest, workers.supervisor.stats().workers)
        assert len(workers.pids) <= 5  # one that comes, and one that is on its way out
        return len(workers.seen) >= count

    def fed() -> bool:
        # As long as it takes: who is busy with other things may have too few of them.
        if workers.supervisor.in_hand < 40:
            more = [f"id-{len(ids) + n}" for n in range(20)]
            ids.extend(more)
            workers.submit(*more)
        return turned(5)

    workers.until(fed)
    workers.until(lambda: turned(5) and workers.supervisor.in_hand == 0)
    assert fewest == 3
    assert workers.states() == dict.fromkeys(ids, ("done", "ok"))


def test_what_a_handler_has_started_ends_with_its_worker(make: Make, tmp_path: Path) -> None:
    workers = make()
    workers.start()
    workers.warm()
    pid = tmp_path / "pid"
    workers.submit("starts", do=f"child {pid}", ce_timeout="50")
    workers.until(lambda: pid.exists() and pid.read_text())
    workers.cancel("starts", "by ann")
    workers.finish()
    assert workers.states() == {"starts": ("cancelled", "cancelled")}
    eventually(lambda: not alive(int(pid.read_text())))


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
def test_a_worker_that_cannot_be_started_for_lack_of_descriptors_is_tried_again(
    make: Make,
) -> None:
    workers = make()
    workers.start()
    workers.warm()
    workers.submit(*names("id"))
    with no_more_descriptors():
        os.kill(workers.pids[0], signal.SIGKILL)
        workers.until(lambda: not workers.supervisor.workers_start)
    assert workers.supervisor.fatal is None
    workers.finish()
    assert workers.states() == dict.fromkeys(names("id"), ("done", "ok"))
    workers.check_effects()


@pytest.mark.long
def test_where_the_kernel_refuses_descriptors_of_processes_their_ends_are_seen(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_pid: int, _flags: int = 0) -> int:
        raise PermissionError(errno.EPERM, "as in some containers")

    monkeypatch.setattr(os, "pidfd_open", refused)
    workers = make()
    workers.start()
    workers.warm()
    workers.submit(*names("id"))
    os.kill(workers.pids[0], signal.SIGKILL)
    workers.finish()
    assert len(workers.seen) == 2
    assert workers.states() == dict.fromkeys(names("id"), ("done", "ok"))


@pytest.mark.long
def test_a_worker_that_has_grown_is_replaced_after_its_chunk(make: Make) -> None:
    workers = make(worker_max_rss=300 * MIB)
    workers.start()
    workers.warm()
    [grown] = workers.pids
    workers.submit(*names("before"))
    workers.submit("grows", do="keep 400", ce_timeout="30")
    workers.submit(*names("after"))
    workers.finish()
    workers.until(lambda: workers.ready and grown not in workers.pids)
    workers.warm()
    assert len(workers.seen) == 2
    assert workers.supervisor.stats().deaths == 0
    assert set(workers.states().values()) == {("done", "ok")}
    workers.check_effects()


def test_an_app_that_cannot_be_imported_is_fatal_at_the_start(make: Make, mood: Path) -> None:
    mood.write_text("raise")
    workers = make(workers=2)
    workers.start()
    assert "RuntimeError: a bad release" in str(workers.supervisor.fatal)
    assert "fragile_app.py" in str(workers.supervisor.fatal)
    assert len(workers.seen) <= 4
    pool = workers.supervisor._pool
    workers.until(lambda: pool.crew.respawn.hopeless and not pool.workers)
    for _ in range(3):
        workers.turn()
    assert "RuntimeError: a bad release" in str(workers.supervisor.fatal), "the cause got lost"


@pytest.mark.long  # test_no_worker_starts.py has the whole service do it
def test_workers_that_die_while_they_start_are_no_endless_loop(make: Make, mood: Path) -> None:
    mood.write_text("exit")
    workers = make()
    workers.start()
    assert "5 workers in a row died while they started" in str(workers.supervisor.fatal)


@pytest.mark.long
def test_an_import_that_fails_later_is_tried_again_and_nothing_is_lost(
    make: Make, mood: Path
) -> None:
    workers = make()
    workers.start()
    workers.warm()
    mood.write_text("raise")
    os.kill(workers.pids[0], signal.SIGKILL)
    workers.until(lambda: not workers.pids)
    workers.submit(*names("id"))
    workers.until(lambda: len(workers.seen) >= 4)
    assert workers.supervisor.fatal is None
    assert workers.supervisor.in_hand == 20
    assert not workers.supervisor.workers_start
    mood.unlink()
    workers.finish()
    assert workers.supervisor.workers_start
    assert workers.states() == dict.fromkeys(names("id"), ("done", "ok"))


def test_from_the_stop_on_a_worker_ends_after_the_request_that_it_runs(
    make: Make, tmp_path: Path
) -> None:
    workers = make()
    workers.start()
    workers.warm(20)
    ids = names("id", 10)
    entered = tmp_path / "entered"
    workers.submit(*ids, do=f"tell {entered} await {tmp_path / 'go-on'}")
    workers.until(entered.exists)
    workers.supervisor.refuse_unstarted("shutdown")
    workers.until(lambda: workers.supervisor.in_hand == 1)
    (tmp_path / "go-on").touch()
    workers.until(lambda: workers.supervisor.in_hand == 0 and not workers.pids)
    ends = workers.states()
    parked = [i for i in ids if ends[i] == ("waiting", "parked")]
    assert (len(parked), {ends[i] for i in ids if i not in parked}) == (9, {("done", "ok")})
    workers.until(lambda: {workers.status(i) for i in parked} == {("waiting", "parked")})
    workers.check_effects()


def looks(workers: Workers) -> list[bool]:
    """Whether each worker runs a request right now."""
    return [look is not None for look in workers.supervisor._at_work.slots.values()]


def test_what_a_call_came_to_past_its_deadline_outlasts_an_outage(
    make: Make, proxy: Proxy, through: str
) -> None:
    workers = make(database_url=through)
    workers.start()
    workers.submit("late", do="heed", kind="fragile.call", ce_timeout="2")
    workers.until(lambda: workers.states() and any(looks(workers)))
    proxy.cut()
    workers.until(lambda: not any(looks(workers)))
    over = time.monotonic() + HASTE + PATIENCE + 1
    workers.until(lambda: time.monotonic() > over)
    proxy.mend()
    workers.finish()
    assert workers.states() == {"late": ("done", "ok")}
    assert workers.supervisor.stats().deaths == 0


def test_a_request_that_heeds_no_signal_is_killed_at_its_deadline(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oncepool")
    workers = make()
    workers.start()
    workers.warm()
    [hung] = workers.pids
    begun = time.monotonic()
    workers.submit("hangs", do="hang", ce_timeout="0.3")
    workers.finish()
    # The deadline, then two seconds between SIGTERM and SIGKILL.
    assert time.monotonic() - begun >= 2.3
    assert hung not in workers.pids
    assert workers.states() == {"hangs": ("failed", "timeout")}
    workers.check_effects()
    lines = [record.getMessage() for record in caplog.records]
    signals = [line for line in lines if "signalling a worker" in line]
    assert [("SIGTERM" in line, "hangs" in line) for line in signals] == [
        (True, True),
        (False, True),
    ]
    assert any("worker was killed" in line and "hangs" in line for line in lines)
    assert not any("worker died" in line for line in lines)


@pytest.mark.parametrize("do", ["hang", "heed"])
def test_of_a_cancelled_request_nothing_is_left_and_its_neighbours_run(make: Make, do: str) -> None:
    workers = make(ordering="none")
    workers.start()
    workers.warm()
    before, after = names("before"), names("after")
    workers.submit(*before)
    workers.submit("bad", do=do, ce_timeout="50")
    workers.submit(*after)
    shown: list[Running] = []

    def bad_runs() -> bool:
        looks = workers.supervisor._at_work.slots.values()
        shown[:] = [look for look in looks if look is not None]
        at_work = [row["request_id"] for row in workers.supervisor.running_requests()]
        return bool(shown) and at_work == ["bad"]

    workers.until(bad_runs)
    [hung] = workers.pids
    # What has ended since the look is not the one that is killed.
    meant = replace(shown[0], chunk=shown[0].chunk - 1)
    workers.supervisor._signal(Signal(0, signal.SIGKILL, "cancelled", meant=meant))
    workers.cancel("bad", "by ann")
    workers.cancel("nobody", "by ann")
    workers.finish()
    # Only what does not heed it is killed.
    assert (hung in workers.pids, workers.supervisor.stats().deaths) == (do == "heed", do == "hang")
    states = workers.states()
    assert states.pop("bad") == ("cancelled", "cancelled")
    assert states == dict.fromkeys([*before, *after], ("done", "ok"))
    workers.check_effects()
    crashes = workers.query(f"SELECT sum(crashes) FROM {workers.schema}.requests")
    assert crashes == [(0,)]


def test_a_maintenance_that_dies_is_started_again_and_requests_go_on(make: Make) -> None:
    workers = make()
    workers.start()
    workers.warm()
    link = workers.supervisor.maintenance
    assert link._child is not None
    dead = link._child.pid
    os.kill(dead, signal.SIGKILL)
    workers.submit(*names("id"))
    workers.finish()
    workers.until(lambda: link._child is not None and link._child.pid != dead)
    workers.supervisor.refuse_unstarted("shutdown")
    workers.submit("late")
    workers.until(lambda: workers.supervisor.in_hand == 0)
    workers.until(lambda: workers.status("late") == ("waiting", "parked"))
    ends = dict.fromkeys(names("id"), ("done", "ok"))
    assert workers.states() == {**ends, "late": ("waiting", "parked")}
