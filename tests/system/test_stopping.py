"""What handlers see of the end of their instance."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT
from tests.support.service import WAIT, Bench, Instance
from tests.support.waiting import eventually

APP = "tests.support.stopping_app:app"


def begin(bench: Bench, instance: Instance, folder: Path, count: int, seconds: float) -> list[str]:
    """Requests that run, each in a worker of its own, and write to files of their names."""
    ids = [f"r-{n}" for n in range(count)]
    for name in ids:
        payload = {"file": str(folder / name), "seconds": seconds}
        bench.client.submit("computes", payload, request_id=name)
    eventually(lambda: all((folder / name).exists() for name in ids), WAIT, lambda: instance.log)
    return ids


def terminate(instance: Instance) -> None:
    """Goes to the phase in which handlers are asked to stop, without waiting for its time."""
    for phase in ("draining", "refusing", "terminating"):
        instance.process.send_signal(signal.SIGTERM)
        instance.says(f"phase={phase}")


def test_handlers_that_compute_see_that_they_are_to_stop(bench: Bench, tmp_path: Path) -> None:
    instance = bench.start(ONCEPOOL_APP=APP, ONCEPOOL_WORKERS="3", ONCEPOOL_GRACE="200")
    ids = begin(bench, instance, tmp_path, 3, 0.0)
    terminate(instance)
    assert instance.process.wait(WAIT) == 0
    for name in ids:
        assert sorted((tmp_path / name).read_text().split()) == ["begun", "stopping", "told"]
        status = bench.client.wait(name, WAIT)
        assert (status.state, status.result) == ("done", "stopped")


@pytest.mark.long
def test_handlers_may_take_a_tenth_of_the_grace_to_stop(bench: Bench, tmp_path: Path) -> None:
    instance = bench.start(ONCEPOOL_APP=APP, ONCEPOOL_WORKERS="1", ONCEPOOL_GRACE="200")
    [name] = begin(bench, instance, tmp_path, 1, 4.0)
    terminate(instance)
    assert instance.process.wait(WAIT) == 0
    rows = bench.query(f"SELECT id, state, code FROM {bench.schema}.requests")
    assert rows == [(name, "done", "ok")]


@pytest.mark.long
def test_a_log_that_nobody_reads_stops_neither_requests_nor_the_end(bench: Bench) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"full\n" * 100)
    os.set_blocking(writer, True)
    process = subprocess.Popen(
        [sys.executable, "-m", "consumer", "run", "tests.support.hostile_app:app"],
        cwd=ROOT,
        env={**os.environ, **bench.environment},
        stderr=writer,
    )
    os.close(writer)
    try:
        assert bench.outcome("raises").state == "failed"  # which is logged with its traceback
        before = drained(reader)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
    finally:
        process.kill()
        process.wait(WAIT)
    assert "running" not in before
    after = drained(reader)
    os.close(reader)
    assert "log lines left out: nobody read them" in after
    assert "ended" in after


def drained(reader: int) -> str:
    """What a pipe holds."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(reader, 1 << 16):
            found += data
    return found.decode()
