"""Relays side by side, each a process, over one outbox."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks.full_path_runs import ROOT
from benchmarks.outbox_place import PARTITIONS, SCHEMA, OutboxPlace
from benchmarks.report import print_table, say

_WARM: Final = 20_000
"""Rows that are sent before it is timed."""
_HERE: Final = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oncepool relay'"
_LEFT: Final = f"""
SELECT EXISTS (SELECT FROM {SCHEMA}.requests WHERE sender = 'default' AND state = 'unsent')
"""
_LONGEST: Final = 600.0


def relays(place: OutboxPlace, numbers: Sequence[int], rounds: int, rows: int) -> None:
    """So many rows, by each number of relays, in turns."""
    found: dict[int, list[tuple[float, float]]] = {number: [] for number in numbers}
    for turn in range(rounds):
        for number in sorted(numbers, reverse=turn % 2 == 1):
            found[number].append(_timed(place, number, rows))
            rate, cpu = found[number][-1]
            say(f"{number} side by side: {rate:,.0f} rows/s, {cpu:.0f} us of CPU a row")
    alone = [rate for rate, _ in found[numbers[0]]]
    lines = []
    for number, each in found.items():
        ratios = sorted(rate / one for (rate, _), one in zip(each, alone, strict=True))
        lines.append((
            str(number), statistics.median(rate for rate, _ in each), statistics.median(ratios),
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}", statistics.median(cpu for _, cpu in each),
        ))  # fmt: skip
    print_table(
        "relays side by side",
        ("relays", "rows/s", f"as a multiple of {numbers[0]}", "lowest and highest", "CPU, us/row"),
        lines,
        "CPU: of the relays alone. Each row came to the topic once",
    )


def _timed(place: OutboxPlace, number: int, rows: int) -> tuple[float, float]:
    """Rows a second, and microseconds of the relays' CPU for each."""
    place.run(f"TRUNCATE {SCHEMA}.requests")
    with relaying(place, number) as processes:
        until_here(place, number)
        place.add(_WARM)
        _until(place, _LEFT, False)
        before, used = _messages(place), _cpu(processes)
        place.add(rows)
        began = time.monotonic()
        _until(place, _LEFT, False)
        took = time.monotonic() - began
        used = _cpu(processes) - used
    sent = _messages(place) - before
    if sent != rows:
        raise RuntimeError(f"{rows} rows were added, and {sent} messages came")
    return rows / took, used / rows * 1e6


@contextmanager
def relaying(place: OutboxPlace, number: int) -> Iterator[list[psutil.Process]]:
    """So many relays, each a process."""
    command = [sys.executable, "-m", "consumer", "relay"]
    processes = [
        subprocess.Popen(command, cwd=ROOT, env=place.environment, stderr=subprocess.DEVNULL)
        for _ in range(number)
    ]
    try:
        yield [psutil.Process(process.pid) for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def until_here(place: OutboxPlace, number: int) -> None:
    """Waits until so many relays are connected to the database."""
    _until(place, _HERE, number)


def _until(place: OutboxPlace, query: str, wanted: object) -> None:
    end = time.monotonic() + _LONGEST
    while place.connection.execute(query.encode()).fetchall() != [(wanted,)]:
        if time.monotonic() > end:
            raise RuntimeError(f"not {wanted} after {_LONGEST:.0f} s: {query}")
        time.sleep(0.02)


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def _messages(place: OutboxPlace) -> int:
    consumer = Consumer({"bootstrap.servers": place.stack.kafka, "group.id": place.topic})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(place.topic, partition), 30)[1]
            for partition in range(PARTITIONS)
        )
    finally:
        consumer.close()
