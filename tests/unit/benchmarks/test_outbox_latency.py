from __future__ import annotations

from benchmarks.outbox_latency import OutboxTimes


def test_times_count_from_the_commit() -> None:
    times = OutboxTimes()
    for number in range(5):
        times.add(100.0 + number, (100.008 + number, 100.010 + number))
    produced, received = times.figures()
    assert (round(produced.p50, 3), round(produced.longest, 3), produced.count) == (8.0, 8.0, 5)
    assert (round(received.p99, 3), received.count) == (10.0, 5)
