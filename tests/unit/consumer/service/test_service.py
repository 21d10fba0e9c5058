from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer.service import service as service_module
from consumer.service.service import EXIT_CLEAN, EXIT_FATAL, EXIT_KILLED
from processing.ipc.frames import Counts, MaintenanceReady
from tests.support.scripted_service import GRACE, A, ScriptedService, term
from tests.support.thread_starts import refusing


@pytest.fixture
def said(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Callable[[], list[str]]:
    """What was logged: printed lines where nothing has configured logging yet, else records."""

    def lines() -> list[str]:
        told = capfd.readouterr()
        return [*(told.out + told.err).splitlines(), *(r.getMessage() for r in caplog.records)]

    return lines


def test_it_starts_the_maintenance_then_workers_then_joins_and_ends_in_order(
    bench: ScriptedService,
) -> None:
    bench.script = {5: lambda: bench.arrive(0, 1), 20: term}
    assert bench.run() == EXIT_CLEAN
    assert bench.pool.calls == ["maintenance", "workers", "submit", "refuse shutdown", "close"]
    assert bench.kafka.calls == ["subscribe", "close"]
    assert len(bench.pool.submitted) == 2
    assert bench.pool.refused == []


@pytest.mark.parametrize("port", [None, 8080])
def test_what_is_behind_is_asked_where_somebody_shows_it(
    bench: ScriptedService, port: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not of a client that is being closed."""
    monkeypatch.setattr(service_module, "BEAT_EVERY", 0.0)
    bench.kafka.behind = {"t": 3}
    bench.script = {5: lambda: bench.arrive(0), 20: term}
    assert bench.run(health_port=port) == EXIT_CLEAN
    assert bench.beats()[0]["lag"] == ({} if port is None else {"t": 3})


def test_brokers_that_are_away_are_told_with_each_beat(
    bench: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "BEAT_EVERY", 0.0)
    bench.script = {5: lambda: setattr(bench.kafka, "brokers_away_for", 7.5), 20: term}
    assert bench.run() == EXIT_CLEAN
    told = [beat["brokers_away_for"] for beat in bench.beats()]
    assert (told[0], told[-1]) == (None, 7.5)


def test_what_is_in_hand_runs_to_its_end_within_the_grace(bench: ScriptedService) -> None:
    bench.pool.per_step = 0
    bench.script = {
        5: lambda: bench.arrive(0, 1),
        20: term,
        40: lambda: setattr(bench.pool, "per_step", None),
    }
    assert bench.run(grace=30) == EXIT_CLEAN
    assert bench.pool.refused == []
    assert "terminate" not in bench.pool.calls


def test_what_has_not_started_at_ninety_percent_is_refused(bench: ScriptedService) -> None:
    bench.pool.per_step = 0
    bench.script = {5: lambda: bench.arrive(0, 1), 20: term}
    started = time.monotonic()
    assert bench.run(read_again=False) == EXIT_CLEAN
    assert time.monotonic() - started >= 0.9 * GRACE
    assert [r[2] for r in bench.pool.refused] == [0, 1]


def test_what_cannot_be_put_away_is_counted_and_the_exit_code_says_so(
    bench: ScriptedService, said: Callable[[], list[str]]
) -> None:
    """As where the maintenance process hangs while it parks."""
    bench.pool.per_step = 0
    bench.pool.parks = False
    bench.script = {5: lambda: bench.arrive(0, 1), 20: term}
    assert bench.run(read_again=False) == EXIT_KILLED
    lines = said()
    named = [line for line in lines if "requests left in hand" in line]
    assert any("in_hand=2" in line or "'in_hand': 2" in line for line in named), lines


def test_workers_that_do_not_end_are_asked_and_then_killed(bench: ScriptedService) -> None:
    bench.pool.stubborn = True
    bench.script = {5: lambda: bench.arrive(0), 20: term}
    assert bench.run() == EXIT_KILLED
    assert bench.pool.calls[-4:] == ["refuse shutdown", "terminate", "kill", "close"]
    assert bench.pool.killed_because == "the grace is over"


def test_what_was_lost_at_a_commit_is_told_and_counted_once(bench: ScriptedService) -> None:
    bench.kafka.silent = True
    bench.script = {5: lambda: bench.arrive(0, 1), 20: term}
    bench.run(read_again=False)
    told = [f.counts for f in bench.pool.maintenance.frames if isinstance(f, Counts)]
    assert told == [{("a.b", "lost", "at_commit"): 2}]


def test_what_was_lost_while_no_maintenance_is_there_is_told_to_the_next(
    bench: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "BEAT_EVERY", 0.0)

    def away(*, away: bool) -> None:
        bench.service._loop._commit.lost["a.b"] += 1
        bench.pool.maintenance.away = away

    bench.script = {5: lambda: away(away=True), 10: lambda: away(away=False), 15: term}
    bench.run()
    told = [f.counts for f in bench.pool.maintenance.frames if isinstance(f, Counts)]
    assert told == [{("a.b", "lost", "at_commit"): 2}]


def test_each_further_signal_is_the_next_phase(bench: ScriptedService) -> None:
    bench.pool.stubborn = True
    bench.script = {5: lambda: bench.arrive(0), 20: term, 25: term, 30: term, 35: term}
    assert bench.run(grace=3600) == EXIT_KILLED
    assert bench.pool.calls[-4:] == ["refuse shutdown", "terminate", "kill", "close"]
    assert bench.pool.killed_because == "a further signal came"


def test_an_open_commit_is_settled_before_the_group_is_left(bench: ScriptedService) -> None:
    bench.kafka.silent = True
    order: list[str] = []

    def answer() -> None:
        order.append(f"left: {'close' in bench.kafka.calls}")
        from consumer.intake.events import Answered

        bench.kafka.events.append(Answered(bench.kafka.commits[0][1], None, {}))
        bench.kafka.silent = False  # nor does the one that tells the mark go without an answer

    bench.script = {5: lambda: bench.arrive(0), 12: term, 30: answer}
    assert bench.run(grace=30) == EXIT_CLEAN
    assert order == ["left: False"]
    assert len(bench.pool.submitted) == 1
    assert bench.kafka.calls[-1] == "close"


def test_a_commit_that_is_not_answered_is_given_up_at_ninety_percent(
    bench: ScriptedService,
) -> None:
    bench.kafka.silent = True
    bench.script = {5: lambda: bench.arrive(0), 12: term}
    assert bench.run() == EXIT_CLEAN
    assert bench.pool.submitted == []
    assert bench.service.counts["drop:undecided"] == 1


def test_a_worker_that_was_killed_is_no_clean_end_though_nothing_is_left(
    bench: ScriptedService,
) -> None:
    def killed() -> None:
        bench.pool.killed = 1

    bench.script = {5: killed, 6: term}
    assert bench.run() == EXIT_KILLED


def test_a_group_that_cannot_be_left_ends_with_three(bench: ScriptedService) -> None:
    bench.kafka.close_hangs.clear()
    bench.script = {5: term}
    assert bench.run() == EXIT_KILLED
    assert bench.service.stuck
    bench.kafka.close_hangs.set()


@pytest.mark.parametrize("schema", ["missing", "too_new"])
def test_a_journal_that_cannot_be_used_is_fatal_before_anything_else(
    bench: ScriptedService, schema: str, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.pool.schema = MaintenanceReady(schema, "run `oncepool migrate`")
    assert bench.run() == EXIT_FATAL
    assert "oncepool migrate" in capfd.readouterr().err
    assert bench.pool.calls == ["maintenance", "refuse shutdown", "close"]
    assert "subscribe" not in bench.kafka.calls


def test_the_group_is_not_joined_before_the_database_was_reached(bench: ScriptedService) -> None:
    bench.pool.schema = MaintenanceReady("unreachable", "refused")
    bench.pool.database_up = False
    bench.script = {20: term}
    assert bench.run() == EXIT_CLEAN
    assert "subscribe" not in bench.kafka.calls


def test_the_group_is_joined_once_the_database_is_reached(bench: ScriptedService) -> None:
    bench.pool.schema = MaintenanceReady("unreachable", "refused")
    bench.pool.database_up = False
    bench.script = {
        5: lambda: setattr(bench.pool, "database_up", True),
        10: lambda: bench.arrive(0),
        30: term,
    }
    assert bench.run() == EXIT_CLEAN
    assert [dict(offsets) for offsets, _ in bench.kafka.commits] == [{A: 1}, {A: 1}]


def test_an_app_that_cannot_be_imported_is_printed_and_nothing_is_consumed(
    bench: ScriptedService, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    bench.pool.workers_start = False
    trace = "Traceback ...\nModuleNotFoundError: No module named 'shop'"
    bench.script = {3: lambda: setattr(bench.pool, "fatal", trace)}
    assert bench.run(log_format="console") == EXIT_FATAL
    told = capfd.readouterr()
    assert told.err == "Traceback ...\noncepool: ModuleNotFoundError: No module named 'shop'\n"
    # Once, unless what is in hand has to be drained first.
    lines = [told.out, *(r.getMessage() for r in caplog.records)]
    assert any("ending" in line for line in lines)
    assert not any("No module named" in line for line in lines)
    assert "subscribe" not in bench.kafka.calls


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fatal_error_of_the_pool_refuses_at_once_what_nobody_can_run(
    bench: ScriptedService, workers: int
) -> None:
    bench.pool.per_step = 0
    bench.script = {
        5: lambda: bench.arrive(0),
        20: lambda: vars(bench.pool).update(alive=workers, fatal="no worker can start"),
        40: lambda: setattr(bench.pool, "per_step", None),
    }
    assert bench.run(read_again=False, grace=3600) == EXIT_FATAL
    assert len(bench.pool.refused) == (0 if workers else 1)


def test_a_fatal_error_of_kafka_drains_and_ends_with_one(
    bench: ScriptedService, capfd: pytest.CaptureFixture[str]
) -> None:
    from consumer.intake.events import Trouble

    bench.script = {
        5: lambda: bench.kafka.events.append(Trouble("_FATAL", "fenced", fatal=True)),
    }
    assert bench.run() == EXIT_FATAL
    assert "fenced" in capfd.readouterr().err
    assert "submit" not in bench.pool.calls


@pytest.mark.parametrize("lifted, code", [(True, EXIT_CLEAN), (False, EXIT_KILLED)])
def test_a_group_that_no_thread_can_be_started_to_leave_is_left_later_or_holds_up_no_end(
    bench: ScriptedService, said: Callable[[], list[str]], code: int, *, lifted: bool
) -> None:
    with contextlib.ExitStack() as limit:
        limit.enter_context(refusing("leave"))
        bench.script = {20: term, 60: limit.close} if lifted else {20: term}
        assert bench.run(grace=30 if lifted else GRACE) == code
    assert bench.kafka.calls == ["subscribe", "close"][: 1 + lifted]
    lines = said()
    assert sum("the group can't be left yet" in line for line in lines) == 1
    assert any("not be left in time: no thread could be started" in x for x in lines) != lifted


@pytest.mark.parametrize("lasting", [False, True])
def test_what_is_in_hand_runs_to_its_end_after_an_error_that_nobody_foresaw(
    bench: ScriptedService, monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    bench.pool.per_step = 0
    poll = bench.kafka.poll

    def break_down() -> None:
        monkeypatch.setattr(bench.kafka, "poll", fail)

    def fail(*_: Any) -> Any:
        if not lasting:
            monkeypatch.setattr(bench.kafka, "poll", poll)
        raise RuntimeError("can't start new thread")

    bench.script = {
        5: lambda: bench.arrive(0, 1),
        15: break_down,
        25: lambda: setattr(bench.pool, "per_step", None),
    }
    assert bench.run(read_again=False, grace=30) == EXIT_FATAL
    assert bench.pool.calls[-2:] == ["refuse shutdown", "close"]
    assert (len(bench.pool.submitted), bench.pool.refused, bench.pool.queue) == (2, [], [])
    assert bench.kafka.calls[-1] == "close"


def test_a_signal_during_the_start_ends_it(bench: ScriptedService) -> None:
    bench.pool.workers_start = False
    bench.script = {4: term}
    assert bench.run() == EXIT_CLEAN
    assert "subscribe" not in bench.kafka.calls
    assert bench.pool.calls == ["maintenance", "workers", "refuse shutdown", "close"]


def test_the_maintenance_hears_how_it_stands(
    bench: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "BEAT_EVERY", 0.0)
    bench.script = {5: lambda: bench.arrive(0), 30: term}
    bench.run()
    beats = bench.beats()
    assert {"joined": True, "assigned": 1, "stopping": False}.items() <= beats[20].items()
    assert beats[-1]["stopping"] is True


@pytest.mark.parametrize("database", [True, False])
def test_a_service_manager_hears_of_start_life_and_end(
    bench: ScriptedService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: bool
) -> None:
    """Without its database it has started all the same, and waits."""
    monkeypatch.setattr(service_module, "BEAT_EVERY", 0.0)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    bench.pool.database_up = database
    bench.script = {30: term}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        assert bench.run() == EXIT_CLEAN
        manager.setblocking(False)
        heard = []
        with contextlib.suppress(BlockingIOError):
            while True:
                heard.append(manager.recv(4096).decode())
    started = ["STATUS=running"] if database else []
    first = "running" if database else "waiting for the database"
    told = [line for line in heard if line != "WATCHDOG=1"]
    assert told == [f"READY=1\nSTATUS={first}", *started, "STOPPING=1\nSTATUS=draining"]
    assert "WATCHDOG=1" in heard


def test_the_watchdog_ends_a_process_whose_main_thread_is_stuck() -> None:
    code = (
        "import os, threading, time\n"
        "from consumer.service.watchdog import Watchdog\n"
        "end = time.monotonic() + 0.2\n"
        "Watchdog(lambda: end, lambda: 3, os.pipe()[0], 60.0)\n"
        "threading.Event().wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 3
    assert b"stuck" in done.stderr


@pytest.mark.parametrize("read", [True, False], ids=["full", "broken"])
def test_the_watchdog_needs_no_stderr_that_takes_its_line(read: bool) -> None:
    """A full pipe holds the main thread in the middle of a line, with the stream's lock."""
    code = (
        "import os, sys, threading, time\n"
        "from consumer.service.watchdog import Watchdog\n"
        "end = time.monotonic() + 0.2\n"
        "Watchdog(lambda: end, lambda: 3, os.pipe()[0], 60.0)\n"
        "sys.stderr.write('x' * 100_000) if len(sys.argv) > 1 else threading.Event().wait()\n"
    )
    reader, writer = os.pipe()
    if not read:
        os.close(reader)
    command = [sys.executable, "-c", code, *(["full"] if read else [])]
    process = subprocess.Popen(command, stderr=writer)
    os.close(writer)
    try:
        assert process.wait(100) == 3
    finally:
        process.kill()
        if read:
            os.close(reader)


def test_the_watchdog_ends_a_process_that_never_hears_its_signals() -> None:
    """The main thread waits inside a C function that no signal interrupts, as librdkafka may."""
    code = (
        "import ctypes, os, signal, threading\n"
        "from consumer.service.signal_pipe import Signals\n"
        "from consumer.service.watchdog import Watchdog\n"
        "signals = Signals()\n"
        "Watchdog(lambda: float('inf'), lambda: 3, signals.fileno(), 0.2)\n"
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "libc = ctypes.CDLL(None)\n"
        "mutex = ctypes.create_string_buffer(64)\n"
        "libc.pthread_mutex_lock(mutex)\n"
        "libc.pthread_mutex_lock(mutex)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 3
    assert b"stuck" in done.stderr


STUCK_IN_A_POLL = """
import ctypes, os, signal
from consumer.config.settings import Settings
from consumer.service import service
from consumer.service.service import Service
from consumer.service.signal_pipe import Signals
from processing.logs import get_logger
from tests.support.fake_kafka import FakeKafka
from tests.support.fake_pool import FakeSupervisor

class Stuck(FakeKafka):
    def poll(self, most, timeout):
        os.kill(os.getpid(), signal.SIGTERM)
        libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)

service.STUCK_AFTER = 0.2
signals = Signals()
Service(Settings(grace=0.2), "me", FakeSupervisor(), Stuck(), signals, get_logger("test")).run()
"""


def test_a_service_whose_main_thread_is_stuck_while_it_runs_ends_on_sigterm() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK_IN_A_POLL], capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 3
    assert b"stuck" in done.stderr


def test_a_dismissed_watchdog_does_nothing() -> None:
    code = (
        "import os, threading, time\n"
        "from consumer.service.watchdog import Watchdog\n"
        "end = time.monotonic() + 0.2\n"
        "Watchdog(lambda: end, lambda: 3, os.pipe()[0], 60.0).dismiss()\n"
        "[one.join() for one in threading.enumerate() if one.name == 'watchdog']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=100, check=False)
    assert done.returncode == 0


def ends_well(run: str) -> bool:
    """Whether a service whose `run(service)` is this function ends with 0."""
    code = f"""
import gc, sys
from consumer.config.settings import Settings
from consumer.service.service import Service, run_service
{run}
Service.run = run
names = dict(kafka_topics=["t"], kafka_group="g")
sys.exit(run_service(Settings(kafka_bootstrap_servers="127.0.0.1:1", **names)))
"""
    return subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == 0


def test_full_collections_do_not_visit_what_was_loaded() -> None:
    """Else each stops the main process for as long as it takes to go through every module."""
    assert ends_well("""
def run(service):
    return int(gc.get_freeze_count() < len(gc.get_objects()))
""")


def test_what_comes_and_goes_is_not_looked_through_for_garbage() -> None:
    """With Python's own threshold each poll had the collector visit all of its records."""
    assert ends_well("""
def poll():
    return [(n, [("ce_id", b"1"), ("ce_type", b"t")]) for n in range(1000)]

def run(service):
    hand = [poll() for _ in range(9)]
    gc.collect()
    begun = gc.get_stats()
    for _ in range(100):
        hand.append(poll())
        del hand[0]
    return int(not gc.isenabled() or gc.get_stats() != begun)
""")
