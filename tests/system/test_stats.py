"""`oncepool stats` on the real stack: figures that are true, services that are away, Ctrl-C."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
from typing import Any

import orjson
import pytest

from tests.support.programs import ROOT
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

AWAY = {
    "ONCEPOOL_REDIS_URL": "redis://:hid@127.0.0.1:1/0",
    "ONCEPOOL_DATABASE_URL": "postgresql://u:hid@127.0.0.1:1/d",
}


PARTITIONS = 2


def environment(bench: Bench, *away: str) -> dict[str, str]:
    return {**os.environ, **bench.environment, **{name: AWAY[name] for name in away}}


def stats(bench: Bench, *away: str) -> tuple[Any, subprocess.CompletedProcess[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "consumer", "stats", "--json"],
        cwd=ROOT,
        env=environment(bench, *away),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    return orjson.loads(done.stdout), done


def test_the_figures_are_those_of_what_ran(bench: Bench) -> None:
    bench.start()
    for n in range(5):
        bench.outcome("effect", {"table": bench.table, "n": n})
    bench.outcome("rejects")
    bench.client.submit("effect", {"table": bench.table}, delay=3600)
    held = bench.client.submit("slow", {"seconds": 600})

    def whole() -> Any:
        figures, _ = stats(bench)
        assert figures["summary"]["done_hour"] == 5
        assert figures["summary"]["in_process"] == 1
        beat = [figures["summary"][name] for name in ("instances", "workers", "workers_free")]
        assert beat == [1, 2, 1], "both have started, one runs it, and a heartbeat told so"
        assert [(row["code"], row["n"]) for row in figures["postponed"]] == [("delayed", 1)]
        assert figures["instances"][0]["age"] < 10, "its heartbeat is a recent one"
        return figures

    figures = eventually(whole, WAIT)

    summary = figures["summary"]
    assert (summary["in_hand"], summary["lag"], summary["waiting"]) == (1, 0, 1)
    assert (summary["dead"], summary["in_doubt"], summary["lost_at_commit"]) == (0, 0, 0)
    assert summary["done_day"] == 5
    assert summary["rate"] > 0
    (instance,) = figures["instances"]
    assert {"id", "host", "version", "workers", "at_once", "lost_at_commit"} <= instance.keys()
    rates = {row["type"]: row["rate"] > 0 for row in figures["types"]}
    assert rates["effect"]
    assert rates["rejects"]
    states = {row["state"] for row in figures["requests"]}
    assert states >= {"done", "rejected"}
    assert "waiting" not in states, "it has not ended"
    assert figures["limits"]["instances"] == [instance["id"]]
    assert figures["problems"] == {}
    assert held


@pytest.mark.parametrize(
    "away,name,there,missing",
    [
        ("ONCEPOOL_REDIS_URL", "instances", {"requests", "types", "topics"}, "workers"),
        ("ONCEPOOL_DATABASE_URL", "requests", {"instances", "limits", "topics"}, "done_hour"),
    ],
)
def test_a_service_that_is_away_costs_its_own_part(
    bench: Bench, away: str, name: str, there: set[str], missing: str
) -> None:
    figures, done = stats(bench, away)

    assert done.returncode == 0
    assert there <= figures.keys()
    assert name not in figures
    assert figures["problems"].keys() == {name}
    assert figures["summary"][missing] is None
    assert f"oncepool: {name}: " in done.stderr
    assert "hid" not in done.stdout + done.stderr


@pytest.mark.parametrize("draws", [*(pytest.param(n, marks=pytest.mark.long) for n in (0, 2)), 1])
def test_watching_ends_cleanly_on_ctrl_c(bench: Bench, draws: int) -> None:
    master, slave = pty.openpty()
    watching = subprocess.Popen(
        [sys.executable, "-m", "consumer", "stats", "--watch"],
        cwd=ROOT,
        env={**environment(bench), "TERM": "xterm", "COLUMNS": "200", "LINES": "50"},
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    # At once after the screen was taken over, and after so many times that it was drawn.
    while b"\x1b[?1049h" not in seen or seen.count(b"in hand 0") < draws:
        seen += os.read(master, 65536)
    watching.send_signal(signal.SIGINT)
    while True:
        try:
            seen += os.read(master, 65536)
        except OSError:  # the other end is closed
            break
    os.close(master)

    assert watching.wait(60) == 0
    assert b"Traceback" not in seen
    assert b"Abort" not in seen
    assert b"\x1b[?25h" in seen, "the cursor stays hidden"
    assert b"\x1b[?1049l" in seen, "the screen from before is not back"


@pytest.mark.long
def test_a_small_terminal_is_scrolled_by_keys(bench: Bench) -> None:
    bench.start()
    bench.outcome("effect", {"table": bench.table})
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    watching = subprocess.Popen(
        [sys.executable, "-m", "consumer", "stats", "--watch"],
        cwd=ROOT,
        env={**environment(bench), "TERM": "xterm", "COLUMNS": "80", "LINES": "10"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    seen = b""

    def read_until(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            seen += os.read(master, 65536)
        seen = b""

    read_until(b"lines 1-9 of")
    os.write(master, b"\x1b[B")
    read_until(b"lines 2-10 of")
    os.write(master, b"G")
    read_until(b"effect")  # the last table: how requests ended
    os.write(master, b"q")

    assert watching.wait(60) == 0
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)
