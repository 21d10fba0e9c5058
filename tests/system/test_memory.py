"""Memory of an instance with more in its topic than it can ever hold."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

BACKLOG = 16_000
PAYLOAD = b'{"seconds": 0.01, "fill": "' + b"x" * 8_000 + b'"}'
"""Together 128 MB."""
MOST = 100
GROWTH = 64 << 20
"""Bytes that the main process may grow by: the client fetches up to 16 MiB ahead."""


PARTITIONS = 2


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_it_stays_flat_with_an_endless_backlog(bench: Bench) -> None:
    instance = bench.start(ONCEPOOL_MAX_IN_HAND=str(MOST), ONCEPOOL_GRACE="3")
    before = rss(instance.process.pid)
    producer = Producer({"bootstrap.servers": bench.stack.kafka, "linger.ms": 20})
    for number in range(BACKLOG):
        name = f"m-{number}".encode()
        headers: list[tuple[str, str | bytes | None]] = [("ce_id", name), ("ce_type", b"slow")]
        producer.produce(bench.topic, PAYLOAD, name, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0
    peak = 0

    def a_part_is_done() -> bool:
        nonlocal peak
        peak = max(peak, rss(instance.process.pid))
        assert all(facts.get("in_hand", 0) <= MOST for facts in bench.facts())
        return bench.done() >= BACKLOG // 20

    eventually(a_part_is_done, WAIT, lambda: instance.log)
    assert bench.waiting() > BACKLOG // 2, "the backlog was there all the time"
    assert peak - before < GROWTH
    assert instance.stop() == 0
