"""The clock of the chaos suite that jumps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.real.clock import JumpingClock

PROGRAM = """
import time
from datetime import UTC, datetime
from time import monotonic
from tests.chaos.real import clock

clock.follow()
while input():
    now = datetime.now(UTC).timestamp()
    print(time.time(), time.time_ns() / 1e9, now, monotonic(), flush=True)
"""


def test_all_that_tells_the_time_jumps_and_what_nobody_can_set_does_not(tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path / "clock")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "CHAOS_CLOCK": str(tmp_path / "clock")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for offset in (0.0, 3600.0, -60.0, 0.0):
            clock.set(offset)
            before, monotonic = time.time(), time.monotonic()
            process.stdin.write("now\n")
            process.stdin.flush()
            *times, steady = map(float, process.stdout.readline().split())
            after = time.time()
            assert len(times) == 3
            assert all(before + offset - 0.001 <= told <= after + offset for told in times)
            assert monotonic <= steady <= time.monotonic()
        process.stdin.write("\n")
        process.stdin.flush()
