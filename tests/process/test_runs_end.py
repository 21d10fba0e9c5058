"""A program that has begun a run takes down what it started when it is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import run

PROGRAM = """
import time
from tests.support import run

run.end_at_sigterm()
run.begin()
try:
    try:
        print(run.folder(), flush=True)
        time.sleep(60)
    except Exception:
        print("taken for a failure of what ran", flush=True)
finally:
    print("ending", flush=True)
    input()
    run.end()
"""


def test_sigterm_ends_a_run_and_no_second_one_disturbs_that() -> None:
    environ = {n: v for n, v in os.environ.items() if n not in (run.FOLDER, run.OWNER)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environ, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "ending\n"
        process.send_signal(signal.SIGTERM)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(30) == 143
    assert not folder.exists()
