"""What one stretch of load shows: how much was finished, how late, and where it stood still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cpu import per_request
from benchmarks.rebalance_books import BookedRow
from benchmarks.rebalance_load import Asked
from benchmarks.spread import quantile
from benchmarks.stalls import Event, longest, longest_by_cause, rates

BIN = 0.5
"""Seconds of one step of the curves."""
IN_TIME = 1.0
"""Seconds from the first send within which a request is finished in time."""


@dataclass(frozen=True, slots=True)
class StretchRun:
    """A stretch as it was run. Times are seconds since the epoch."""

    begin: float
    end: float
    settling: float
    """Seconds from the end until the last answer was there, resends and all."""
    events: tuple[Event, ...]
    spent: Mapping[str, float]
    """Part -> CPU seconds that it took; empty where members came and went."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch in figures. Seconds, and requests a second."""

    seconds: float
    offered: float
    finished: float
    """While the load was on: what was late is not counted."""
    in_time: float
    """Finished within IN_TIME of their first send."""
    latency_p50: float
    """From the first send to the row in the journal, waiting and resends included."""
    latency_p99: float
    latency_most: float
    settling: float
    group_stall: float
    """The longest time in which nobody finished anything."""
    stalls: dict[str, float]
    """The longest time in which a partition stood still, by what had happened."""
    curve: list[float]
    """Finished requests a second, in bins of BIN."""
    events: list[tuple[float, str]]
    """Seconds since the begin, and what was done."""
    cpu: dict[str, float]
    """Part -> microseconds a request; empty where that could not be told."""

    @property
    def partition_stall(self) -> float:
        """The longest time in which a partition stood still."""
        return max(self.stalls.values())


def measure(
    taken: StretchRun, journal: Mapping[str, BookedRow], asked: Sequence[Asked], partitions: int
) -> Stretch:
    """The figures of a stretch; at least one of its requests was finished."""
    begin, end = taken.begin, taken.end
    own = [one for one in asked if begin <= one.first <= end]
    rows = [(one, row) for one in own if (row := journal.get(one.id)) and row.finished]
    latencies = sorted(row.finished - one.first for one, row in rows)
    times = sorted(row.finished for _, row in rows)
    of_partition: dict[int, list[float]] = {number: [] for number in range(partitions)}
    for row in sorted((row for _, row in rows), key=lambda row: row.finished):
        of_partition[row.copy.partition].append(row.finished)
    seconds = end - begin
    return Stretch(
        seconds=round(seconds, 3),
        offered=len(own) / seconds,
        finished=sum(time <= end for time in times) / seconds,
        in_time=sum(latency <= IN_TIME for latency in latencies) / seconds,
        latency_p50=quantile(latencies, 0.5),
        latency_p99=quantile(latencies, 0.99),
        latency_most=latencies[-1],
        settling=taken.settling,
        group_stall=longest(times, begin, end),
        stalls=longest_by_cause(of_partition, begin, end, taken.events),
        curve=rates(times, begin, end, BIN),
        events=[(round(event.at - begin, 2), event.kind) for event in taken.events],
        cpu=per_request({}, taken.spent, sum(time <= end for time in times)),
    )
