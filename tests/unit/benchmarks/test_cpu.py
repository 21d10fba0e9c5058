import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cpu import PARTS, medians, per_request, used

BURN = """
import sys, time
sys.stdin.readline()
end = time.process_time() + 0.4
while time.process_time() < end: pass
"""
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
print("ended", flush=True)
sys.stdin.read()
"""


def test_what_ended_children_have_used_is_counted(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        before = used([parent.pid], tmp_path)
        parent.stdin.write("go\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "ended\n"
        after = used([parent.pid], tmp_path)
        assert after["other"] - before["other"] >= 0.35
        parent.communicate()


def test_a_process_that_does_not_count_is_left_out(tmp_path: Path) -> None:
    assert not any(used([], tmp_path, {os.getpid()}).values())


@pytest.mark.parametrize(
    "before, after, requests, found",
    [
        ({"main": 1.0}, {"main": 3.0, "worker": 1.0}, 1_000, {"main": 2000, "worker": 1000}),
        ({"main": 1.0}, {"main": 1.2}, 1_000, {}),  # too little was used
        ({"main": 1.0, "PostgreSQL": 2.0}, {"main": 3.0, "PostgreSQL": 1.5}, 1_000, {}),
        ({"main": 1.0}, {"main": 3.0}, 0, {}),
    ],
)
def test_what_cannot_be_told_is_not_told(
    before: dict[str, float], after: dict[str, float], requests: int, found: dict[str, float]
) -> None:
    assert per_request(before, after, requests) == found


def test_runs_that_could_not_tell_do_not_count() -> None:
    found = medians([{"main": 4.0, "other": 1.0}, {}, {"main": 8.0}])
    assert (found["main"], found["worker"], found["all"]) == (6.0, 0.0, 6.5)
    assert medians([{}, {}]) == dict.fromkeys((*PARTS, "all"))
