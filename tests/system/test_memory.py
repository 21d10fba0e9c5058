"""Memory of an instance with more in its topic than it can ever hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

PARTITIONS = 2
SIZE = 20_000
BACKLOG = 6_000
"""Together 120 MB."""
FIRST, LAST = 500, 4_500
"""Between so many finished requests memory is looked at: 80 MB come and go."""
GROWTH = 32 << 20
"""Bytes that the main process may grow by meanwhile."""
MOST = 100
HEADERS = 99_990
"""Empty ones of a message: two bytes each, and a hundred in memory."""
HEAVY = 60
"""Messages with so many headers, together 12 MB."""


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def highest_rss(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def fill(bench: Bench) -> None:
    """Sends the backlog: each request has a key of its own."""
    payload = b'{"seconds": 0, "fill": "' + b"x" * SIZE + b'"}'
    producer = Producer({"bootstrap.servers": bench.stack.kafka, "linger.ms": 20})
    for number in range(BACKLOG):
        name = f"m-{number}".encode()
        headers: list[tuple[str, str | bytes | None]] = [("ce_id", name), ("ce_type", b"slow")]
        producer.produce(bench.topic, payload, name, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_it_grows_neither_with_its_backlog_nor_with_what_is_finished(bench: Bench) -> None:
    fill(bench)
    instance = bench.start(ONCEPOOL_MAX_IN_HAND=str(MOST), ONCEPOOL_GRACE="3")

    def finished(count: int) -> bool:
        assert all(facts.get("in_hand", 0) <= MOST for facts in bench.facts())
        return bench.done() >= count

    eventually(lambda: finished(FIRST), WAIT, lambda: instance.log)
    before = rss(instance.process.pid)
    eventually(lambda: finished(LAST), WAIT, lambda: instance.log)
    grown = rss(instance.process.pid) - before
    assert grown < GROWTH, f"{grown >> 20} MiB"
    assert instance.stop() == 0


@pytest.mark.long
def test_headers_count_for_what_they_take(bench: Bench) -> None:
    """Small messages with very many headers are none, and are not taken as if they were."""
    producer = Producer({"bootstrap.servers": bench.stack.kafka, "linger.ms": 20})
    for number in range(HEAVY):
        name = f"h-{number}".encode()
        headers: list[tuple[str, str | bytes | None]] = [("ce_id", name), ("ce_type", b"slow")]
        producer.produce(
            bench.topic, b'{"seconds": 0}', name, headers=headers + [("", b"")] * HEADERS
        )
    assert producer.flush(60) == 0
    instance = bench.start(ONCEPOOL_GRACE="3")
    eventually(lambda: bench.done() >= HEAVY, WAIT, lambda: instance.log)
    most = highest_rss(instance.process.pid)
    assert most < 512 << 20, f"{most >> 20} MiB"
    assert instance.stop() == 0
