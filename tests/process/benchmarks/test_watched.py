"""Processes that are watched from within work as others do, and say what they did."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import sampling, stamps
from benchmarks.budget_steps import OTHER, READ, steps_of_process
from benchmarks.sampling import MAIN, Sampled, sampled
from benchmarks.sampling import NOWHERE as NOTHING_OF_OURS
from benchmarks.stamps import ENTERED, SENDING, TAKEN, WRITTEN, stamps_in
from feedback.contract.record import Record
from processing.ipc.child import Child
from processing.ipc.frames import Report, RunChunk, Stop, WorkerReady
from processing.settings import ExecutorSettings, WorkerSettings
from tests.support.mock_brokers import PLACE, MockBrokers
from tests.support.waiting import eventually

LATE = 60.0
CHUNKS, REQUESTS = 12, 500
NOWHERE = "postgresql://127.0.0.1:1/none"
SETTINGS = WorkerSettings(
    app="tests.support.watched_effectless_app:app", database_url=NOWHERE,
    redis_url="redis://127.0.0.1:1", redis_prefix="watched",
    executor=dataclasses.asdict(ExecutorSettings()),
    log={"log_format": "json", "level": "error"},
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where they write."""
    for name in (sampling.FOLDER, stamps.FOLDER):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


@pytest.fixture
def worker() -> Iterator[Child]:
    child = Child("processing.worker", dataclasses.asdict(SETTINGS), with_slot=True)
    yield child
    child.signal(signal.SIGKILL)
    child.wait(LATE)
    child.close()


def record(number: int) -> Record:
    name = f"id-{number}".encode()
    headers: list[tuple[str, bytes | None]] = [("ce_id", name), ("ce_type", b"watched")]
    return ("t", 0, number, 1_700_000_000_000, name, b'{"amount":5}', headers, "watched", None)


def test_a_worker_says_where_its_cpu_goes_and_when_a_request_passes(
    folder: Path, worker: Child
) -> None:
    got: list[object] = []

    def received(kind: type, count: int) -> bool:
        got.extend(worker.channel.receive())
        worker.channel.flush()
        return sum(isinstance(frame, kind) for frame in got) >= count

    eventually(lambda: received(WorkerReady, 1), LATE)
    for number in range(CHUNKS):
        records = [record(number * REQUESTS + n) for n in range(REQUESTS)]
        worker.channel.send(RunChunk(number, f"t-{number}", records, None, 0))
        eventually(lambda done=number + 1: received(Report, done), LATE)  # type: ignore[misc]
    worker.channel.send(Stop())
    assert worker.wait(LATE)
    assert worker.cause == "exit code 0"
    reports = [frame for frame in got if isinstance(frame, Report)]
    back = sum(len(report.returned) for report in reports)  # on a machine that stood still
    assert not any(report.unclear for report in reports)

    found = sampled(folder / sampling.FOLDER, 0.0, float("inf"))["worker"]
    assert {MAIN, "inbox", "statuses"} <= set(found.threads)
    step = steps_of_process("worker")
    shares = found.shares(step)
    assert sum(shares.values()) == pytest.approx(1)
    assert READ in shares
    unknown = {place: n for place, n in found.places.items() if step(place) == OTHER}
    start = unknown.pop(NOTHING_OF_OURS, 0)  # it loads what it needs, too
    assert sum(unknown.values()) < 0.1 * (found.places.total() - start), unknown

    passed = stamps_in(folder / stamps.FOLDER)
    assert len(passed[TAKEN]) == CHUNKS
    assert len(passed[ENTERED]) == CHUNKS * REQUESTS - back
    assert passed[WRITTEN]
    assert passed[SENDING]


@pytest.mark.long
def test_a_watched_main_process_runs_and_ends_in_order(folder: Path) -> None:
    brokers = MockBrokers()
    environment = {
        **os.environ, "ONCEPOOL_APP": SETTINGS.app, "ONCEPOOL_KAFKA_TOPICS": PLACE[0],
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": brokers.servers, "ONCEPOOL_KAFKA_GROUP": "watched",
        "ONCEPOOL_DATABASE_URL": NOWHERE, "ONCEPOOL_REDIS_URL": SETTINGS.redis_url,
        "ONCEPOOL_WORKERS": "1", "ONCEPOOL_LOG_FORMAT": "json",
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.watched_main", "run"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        samples = folder / sampling.FOLDER
        eventually(lambda: in_consumer(samples) or process.poll() is not None, LATE)
        process.send_signal(signal.SIGTERM)
        code = process.wait(LATE)
    finally:
        process.kill()
        process.wait()
    assert code == 0, log.read_text()
    assert in_consumer(samples)


def in_consumer(folder: Path) -> bool:
    """Whether a main process was seen in code of its own."""
    main = sampled(folder, 0.0, float("inf")).get("main", Sampled())
    return any(place.startswith("consumer/") for place in main.places)
