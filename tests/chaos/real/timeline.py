"""Figures over time: rate and latency, recovery after each fault. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.real.episode import Outcome
from tests.chaos.real.faults import Struck


@dataclass(frozen=True)
class Bucket:
    """Some seconds of an episode."""

    at: float
    """Seconds since its begin."""
    rate: float
    """Requests answered a second."""
    p50: float
    p99: float
    """Seconds from the first send to the answer, of those answered here."""


def quantile(values: Sequence[float], share: float) -> float:
    """Of values that may be empty: 0."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def buckets(outcome: Outcome) -> list[Bucket]:
    """Of two seconds each, or longer ones where there would be more than can be told apart."""
    width = max(2.0, (outcome.ended - outcome.began) / 250)
    found: defaultdict[int, list[float]] = defaultdict(list)
    for sent, answered in outcome.facts.ledger.answered:
        found[int((answered - outcome.began) // width)].append(answered - sent)
    last = max(found, default=0)
    return [
        Bucket(n * width, len(found[n]) / width, quantile(found[n], 0.5), quantile(found[n], 0.99))
        for n in range(last + 1)
    ]


def recoveries(outcome: Outcome) -> dict[str, list[float]]:
    """By kind: seconds from each fault's end to the first answer of what was sent after it."""
    pairs = sorted(outcome.facts.ledger.answered)
    sends = [sent for sent, _ in pairs]
    # The earliest answer of anything sent at that place or later.
    earliest = [answered for _, answered in pairs]
    for n in range(len(earliest) - 2, -1, -1):
        earliest[n] = min(earliest[n], earliest[n + 1])
    found: defaultdict[str, list[float]] = defaultdict(list)
    for struck in effective(outcome):
        at = bisect_left(sends, struck.ended)
        if at < len(earliest):
            found[struck.kind].append(earliest[at] - struck.ended)
    return dict(found)


def effective(outcome: Outcome) -> list[Struck]:
    return [struck for struck in outcome.facts.struck if struck.evidence]


def throughput(outcome: Outcome) -> tuple[float, float]:
    """Answers a second while faults were at work, and in the calm between them."""
    windows = merged([(s.began, s.ended) for s in effective(outcome)])
    during = sum(end - begin for begin, end in windows)
    total = outcome.calm_at - outcome.began
    inside = outside = 0
    starts = [begin for begin, _ in windows]
    for _, answered in outcome.facts.ledger.answered:
        if answered > outcome.calm_at:
            continue
        at = bisect_left(starts, answered) - 1
        if at >= 0 and answered <= windows[at][1]:
            inside += 1
        else:
            outside += 1
    return inside / max(during, 0.1), outside / max(total - during, 0.1)


def merged(windows: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same windows without overlaps, in order."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(windows):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
