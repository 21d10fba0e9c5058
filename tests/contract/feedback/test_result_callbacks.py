"""What a client of librdkafka says while results are read, and who closes in the middle of that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest

from feedback.journal.result_outbox import ResultRecord, StoredResult
from processing.maintenance.result_producer import ResultProducer, connect
from stack import Stack

READER = """
import sys
from feedback.client.results import Results

kafka = {"bootstrap.servers": sys.argv[1], "debug": "cgrp,protocol"}
name, group = sys.argv[2:]
with Results(kafka, name, group, from_beginning=True, closed=lambda _: None) as results:
    print(next(results).id)
"""

CLOSED = """
import faulthandler, signal, sys, threading
from feedback import Client
from feedback.status.memory_store import MemoryStatusStore

faulthandler.dump_traceback_later(30, exit=True)
servers, name, way, what = sys.argv[1:]
came = []

def close(*_):
    {"results": results, "client": client}[what].close()

def figures(_):
    if came and threading.current_thread() is threading.main_thread():
        close() if way == "callback" else signal.raise_signal(signal.SIGTERM)

signal.signal(signal.SIGTERM, close)
kafka = {"bootstrap.servers": servers, "statistics.interval.ms": 100, "stats_cb": figures}
with Client(kafka, MemoryStatusStore(), name, hints=False) as client:
    results = client.results(name, from_beginning=True, topic=name)
    for result in results:
        came.append(result.id)
print(*came)
"""

HALF_DONE = """
import faulthandler, signal, sys
from feedback.client.results import Results

faulthandler.dump_traceback_later(60, exit=True)
servers, name, fails = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: results.close())
kafka = {"bootstrap.servers": servers}
with Results(kafka, name, name, from_beginning=True, closed=lambda _: None) as results:
    for result in results:
        signal.raise_signal(signal.SIGTERM)
        print(result.id)
        assert not fails
"""


@pytest.mark.parametrize("what", ["results", "client"])
@pytest.mark.parametrize("way", ["callback", "signal"])
def test_who_closes_in_the_middle_of_a_call_ends_the_iteration(
    stack: Stack, topic: Callable[..., str], way: str, what: str
) -> None:
    """The figures are told, and the signal comes, while the loop waits for the next record."""
    name = topic(partitions=1)
    write(stack, name)
    ended = run(CLOSED, stack.kafka, name, way, what)
    assert (ended.returncode, ended.stdout) == (0, "r-1\n"), ended.stderr[-2000:]


@pytest.mark.parametrize("fails", ["", "fails"])
def test_a_record_in_the_middle_of_which_a_signal_comes_comes_again_where_it_fails(
    stack: Stack, topic: Callable[..., str], fails: str
) -> None:
    name = topic(partitions=1)
    write(stack, name)
    assert run(HALF_DONE, stack.kafka, name, fails).stdout == "r-1\n"
    write(stack, name, "r-2")
    next_ = run(HALF_DONE, stack.kafka, name, "")
    assert next_.stdout == ("r-1\n" if fails else "r-2\n"), next_.stderr[-2000:]


def test_who_asks_the_library_to_say_more_reads_results(
    stack: Stack, topic: Callable[..., str]
) -> None:
    """A call that serves an assignment has more to hand on: lines for its log, errors, figures."""
    name = topic(partitions=1)
    write(stack, name)
    ended = run(READER, stack.kafka, name, name)
    assert (ended.returncode, ended.stdout) == (0, "r-1\n"), ended.stderr[-2000:]


def write(stack: Stack, topic: str, id: str = "r-1") -> None:
    record = StoredResult(1, datetime.now(UTC), ResultRecord(id, "t", "done", "ok", b"1"))
    producer = ResultProducer(topic, partial(connect, {"bootstrap.servers": stack.kafka}))
    assert producer.deliver([record]).arrived


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
