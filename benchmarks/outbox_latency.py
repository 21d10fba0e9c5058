"""How long what is added to an outbox takes from its commit: idle, and beside a steady load.

The topic's messages have the time at which their broker appended them, in whole milliseconds, and
all clocks here are one: so *produced* is that time, and *received* when a consumer has it. One
request at a time, at random moments. The relay is a process, and so is what adds the load. The
plain form looks every 5 s, as its timer says, and sends a row at a time.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.asking import Times
from benchmarks.full_path_runs import ROOT
from benchmarks.outbox_place import PARTITIONS, SCHEMA, OutboxPlace
from benchmarks.outbox_relays import relaying, until_here
from benchmarks.report import print_table, say
from benchmarks.spread import quantile
from feedback import outbox

TIMER: Final = 5.0
WARM_UP: Final = 20
SETTLING: Final = 3.0
"""Seconds of the load that are there before anything is asked."""
PAUSE: Final = 0.02
"""Seconds at most between an answer and the next request."""
_LONGEST: Final = 60.0
_OPEN: Final = f"SELECT count(*) FROM {SCHEMA}.requests WHERE state = 'unsent'"

SendDue = Callable[[psycopg.Connection[Any]], None]
"""Sends and marks all rows that are due."""


@dataclass(slots=True)
class OutboxTimes:
    """Milliseconds from a commit."""

    produced: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)

    def add(self, committed: float, message: tuple[float, float]) -> None:
        """One request: when it was committed; when produced, and received."""
        produced, received = message
        self.produced.append((produced - committed) * 1000)
        self.received.append((received - committed) * 1000)

    def figures(self) -> tuple[Times, Times]:
        """Of both."""
        return _times(self.produced), _times(self.received)


class Received:
    """A consumer of all that is in the topic, which knows when each request has come."""

    def __init__(self, place: OutboxPlace) -> None:
        self._consumer = Consumer({
            "bootstrap.servers": place.stack.kafka, "group.id": place.topic, "fetch.wait.max.ms": 1,
        })  # fmt: skip
        ends = [
            self._consumer.get_watermark_offsets(TopicPartition(place.topic, n), 30)[1]
            for n in range(PARTITIONS)
        ]
        self._consumer.assign([TopicPartition(place.topic, n, end) for n, end in enumerate(ends)])
        self._awaited: str | None = None
        self._found: tuple[float, float] | None = None
        self._come = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        """Reads no more."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def expect(self, id_: str) -> None:
        """What is waited for next; it has not been added yet."""
        self._come.clear()
        self._found, self._awaited = None, id_

    def wait(self) -> tuple[float, float]:
        """When it was produced and received. Raises TimeoutError."""
        if not self._come.wait(_LONGEST) or self._found is None:
            raise TimeoutError(f"{self._awaited} did not come in {_LONGEST:g} s")
        return self._found

    def _read(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)  # consume() would wait until it has its fill
            if message is None or message.error() is not None:
                continue
            if _request_id(message) == self._awaited:
                self._found = (message.timestamp()[1] / 1000, time.time())
                self._come.set()


def latency(
    place: OutboxPlace, number: int, loads: Sequence[int], send_due: SendDue
) -> dict[str, tuple[Times, Times]]:
    """All sides, one after the other; a load of 0 is none."""
    found = {}
    for load in loads:
        place.fill(1)
        with relaying(place, 1), adding(place, load):
            until_here(place, 1)
            time.sleep(SETTLING if load else 0)
            name = f"relay, {load:,} rows/s beside" if load else "relay, idle"
            found[name] = asked(place, number)
            [(behind,)] = place.connection.execute(_OPEN.encode()).fetchall()
            if load and behind > load:
                say(f"{name}: {behind:,} rows behind: this machine does not keep up")
    place.fill(1)
    with timed(place, send_due):
        found["plain form, idle"] = asked(place, max(number // 20, 10), TIMER)
    rows = [
        (name, produced.p50, produced.p99, received.p50, received.p99, produced.count)
        for name, (produced, received) in found.items()
    ]
    print_table(
        "from the commit, ms",
        ("side", "produced, p50", "p99", "received, p50", "p99", "requests"),
        rows,
        "Produced: appended to its partition, by the broker's clock",
    )
    return found


def asked(place: OutboxPlace, number: int, pause: float = PAUSE) -> tuple[Times, Times]:
    """So many requests, one at a time."""
    times = OutboxTimes()
    received = Received(place)
    try:
        warm_up = WARM_UP if pause == PAUSE else 1
        for asking in range(number + warm_up):
            id_ = f"asked-{place.topic}-{time.time_ns()}"
            received.expect(id_)
            outbox.add(place.connection, "bench", {}, request_id=id_)
            committed = time.time()
            message = received.wait()
            if asking >= warm_up:
                times.add(committed, message)
            time.sleep(random.uniform(0, pause))
    finally:
        received.close()
    return times.figures()


@contextmanager
def adding(place: OutboxPlace, rate: int) -> Iterator[None]:
    """Beside it a process adds so many rows a second; none where that is 0."""
    if not rate:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.outbox_load", str(rate)]
    process = subprocess.Popen(command, cwd=ROOT, env=place.environment)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"what adds the load has ended with {process.returncode}")
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def timed(place: OutboxPlace, send_due: SendDue) -> Iterator[None]:
    """The plain form: every 5 s, whatever there is."""
    stop = threading.Event()

    def run() -> None:
        with psycopg.connect(place.stack.database, autocommit=True) as connection:
            while not stop.wait(TIMER):
                send_due(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _times(each: Sequence[float]) -> Times:
    ordered = sorted(each)
    return Times(quantile(ordered, 0.5), quantile(ordered, 0.99), ordered[-1], len(ordered))


def _request_id(message: Message) -> str:
    value = dict(message.headers() or [])["ce_id"]
    return value.decode() if isinstance(value, bytes) else ""
