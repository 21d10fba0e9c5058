"""What metrics cost: CPU per request in a worker and in the main process, without any service.

    scripts/bench measuring [--rounds N]

A chunk of done requests is settled and reported, and its report crosses the channel and is added
up, with durations and without, in turns; the difference is what metrics cost. What an instance pays
once a second, and a scrape, are told beside it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial

from benchmarks.report import print_table
from feedback.metrics.exposition import exposition
from processing import App
from processing.ipc.frames import Measurements, Report, decode, encode
from processing.maintenance.health import Health
from processing.maintenance.instance_metrics import InstanceMetrics
from processing.pool.report_totals import ReportTotals
from processing.worker.calls import DONE
from processing.worker.chunk_durations import ChunkDurations
from processing.worker.chunk_run import ChunkRun
from processing.worker.reading import Limits, read_task
from processing.worker.task import Task

CHUNKS = (500, 100, 20, 1)
REQUESTS = 10_000
"""In one measurement."""
SENT = 1_700_000_000.0


class NoGate:
    """A gate that nobody else passes."""

    lock = threading.Lock()

    def show(self, chunk: int, index: int | None, timeout: float | None, now: float) -> None:
        """Nobody looks."""

    def clear(self) -> None:
        """Nobody looks."""


def tasks_of(number: int) -> list[Task]:
    """Requests that are done, of one type, some milliseconds after they were sent."""
    app, chance = App(), random.Random(7)
    app.handler("pay")(lambda payload: payload)
    made: list[Task] = []
    for n in range(number):
        headers: list[tuple[str, bytes | None]] = [("ce_id", f"id-{n}".encode())]
        headers.append(("ce_type", b"pay"))
        sent = int(SENT * 1000) + n
        record = ("t", 0, n, sent, b"k", b"{}", headers, "pay", None)
        task = read_task(app, n, record, Limits(10.0, 1000))
        if not isinstance(task, Task):
            raise TypeError(task)
        task.end(DONE)
        task.started = SENT + 0.6 + n * 1e-4
        task.seconds = chance.expovariate(2_000)
        made.append(task)
    return made


def worker(tasks: list[Task], measured: bool) -> Report:
    """Settles a chunk as its worker does."""
    chunk = ChunkRun(1, "t", [task.record for task in tasks], None, NoGate())
    chunk.tally.durations = ChunkDurations() if measured else None
    chunk.settle_done(tasks)
    return chunk.finish()


def both(tasks: list[Task], totals: ReportTotals, measured: bool) -> None:
    """The same, and what the main process does with the report."""
    report = decode(encode(worker(tasks, measured))[4:])
    if not isinstance(report, Report):
        raise TypeError(report)
    totals.report(report, len(tasks))


def seconds_of(work: Callable[[], object], times: int) -> float:
    """CPU seconds of one call."""
    begun = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun) / times


def cost(work: Callable[[bool], object], requests: int, rounds: int) -> tuple[float, float]:
    """Microseconds that measuring adds to each request: the median, and between quartiles."""
    found: list[float] = []
    times = max(1, REQUESTS // requests)
    for _ in range(rounds):
        plain = seconds_of(partial(work, False), times)
        found.append((seconds_of(partial(work, True), times) - plain) / requests * 1e6)
    low, middle, high = statistics.quantiles(found, n=4)
    return middle, high - low


def once_a_second() -> tuple[float, float]:
    """Milliseconds of a hand-over with 200 types, and of a scrape of them."""
    health = Health(10.0, time.monotonic)
    types = [f"type-{n}" for n in range(200)]
    metrics = InstanceMetrics("i", health, lambda: 0, time.monotonic)
    metrics.heartbeat({"types": types})
    durations = ChunkDurations()
    for kind in types:
        for what in range(3):
            durations.add(kind, what, [0.001, 0.03, 0.7])
    frame = Measurements(types, durations.counts, {100: 20}, 0)
    exposition(metrics.families())  # it loads prometheus-client
    told = seconds_of(lambda: metrics.measured(frame), 20)
    return told * 1e3, seconds_of(metrics.text, 5) * 1e3


def main() -> None:
    """Measures and prints."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = max(2, arguments.parse_args().rounds)
    rows: list[tuple[object, ...]] = []
    for number in CHUNKS:
        tasks, totals = tasks_of(number), ReportTotals()
        alone, _ = cost(partial(worker, tasks), number, rounds)
        whole, apart = cost(partial(both, tasks, totals), number, rounds)
        rows.append((number, round(alone, 2), round(whole, 2), round(apart, 2)))
    print_table(
        "CPU that metrics add to a request, microseconds",
        ("requests in a chunk", "worker", "worker and main process", "between quartiles"),
        rows,
    )
    told, scraped = once_a_second()
    print(f"200 types: {told:.1f} ms a second where all of them run, {scraped:.0f} ms a scrape")


if __name__ == "__main__":
    main()
