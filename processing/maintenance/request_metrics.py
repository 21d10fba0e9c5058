"""What is shown of requests: how they ended, and what they took. Pure.

Whatever comes from outside is bounded: types that the app does not have, and codes of handlers
beyond the first hundred, are `other`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from feedback.contract import states
from feedback.contract.counts import AnyCounts, NotRun
from feedback.contract.states import DeadLetterReason, State
from feedback.metrics.durations import BOUNDS, DONE, RUN, SUM, WAIT, DurationCounts
from feedback.metrics.families import (
    BoundedLabel,
    HistogramValue,
    Labels,
    MetricFamily,
    by_label,
    family,
    histogram_of,
    one,
)
from feedback.metrics.names import (
    CHUNK_REQUESTS,
    DEAD_LETTERS,
    DONE_SECONDS,
    DUPLICATES_ANSWERED,
    LOST_AT_COMMIT,
    OTHER,
    READ_AGAIN_ANSWERED,
    REQUESTS,
    RUN_SECONDS,
    SKIPPED,
    WAIT_SECONDS,
    Metric,
)

MOST_TYPES: Final = 200
MOST_CODES: Final = 100
"""Of handlers' own."""
MOST_SERIES: Final = 5_000
"""Of type, state and code together."""
OUR_CODES: Final = frozenset(
    str(value) for name, value in vars(states).items() if name.isupper() and isinstance(value, str)
) | frozenset(map(str, DeadLetterReason))
_MEASURED: Final[Mapping[int, Metric]] = {
    RUN: RUN_SECONDS, WAIT: WAIT_SECONDS, DONE: DONE_SECONDS,
}  # fmt: skip


class RequestMetrics:
    """Adds up what workers report."""

    def __init__(self) -> None:
        self._type = BoundedLabel(0)
        self._named = 0
        self._code = BoundedLabel(MOST_CODES, OUR_CODES)
        self._ends: Counter[Labels] = Counter()
        self._duplicates: Counter[Labels] = Counter()
        self._letters: Counter[Labels] = Counter()
        self._read_again: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._skipped = 0
        self._buckets: dict[tuple[int, str], list[float]] = {}
        self._sums: dict[tuple[int, str], float] = {}
        self._chunks: Counter[int] = Counter()
        self._begin(OTHER)
        self._ends[OTHER, State.WAITING.value, states.UNKNOWN_TYPE] = 0

    def know(self, types: Iterable[str]) -> None:
        """The app has these."""
        for kind in types:
            if self._named < MOST_TYPES and self._type(kind) != kind:
                self._named += 1
                self._type.know([kind])
                self._begin(kind)

    def _begin(self, kind: str) -> None:
        """What is to alarm somebody begins at 0: nothing tells that what appears at 1 has risen."""
        self._lost[kind] += 0
        for reason in DeadLetterReason:
            self._letters[kind, reason.value] += 0

    def count(self, counts: AnyCounts) -> None:
        """How requests, and messages that are none, ended."""
        for (kind, state, code), n in counts.items():
            self._count(self._type(kind), str(state), str(code), n)

    def _count(self, kind: str, state: str, code: str, n: int) -> None:
        match state, code:
            case NotRun.LOST.value, _:
                self._lost[kind] += n
            case NotRun.SKIPPED.value, _:
                self._skipped += n
            case NotRun.DEAD_LETTER.value, _:
                self._letters[kind, self._code(code)] += n
            case _, states.DUPLICATE:
                self._duplicates[kind, state] += n
            case _, states.READ_AGAIN:
                self._read_again[kind] += n
            case _:
                key = (kind, state, self._code(code))
                if key not in self._ends and len(self._ends) >= MOST_SERIES:
                    key = (OTHER, state, OTHER)
                self._ends[key] += n

    def measured(self, durations: DurationCounts, chunks: Mapping[int, int]) -> None:
        """What requests took, and how many chunks there were of which size."""
        for (kind, what, bucket), n in durations.items():
            key = (what, self._type(kind))
            if bucket == SUM:
                self._sums[key] = self._sums.get(key, 0.0) + n
            else:
                self._buckets.setdefault(key, [0.0] * (len(BOUNDS) + 1))[bucket] += n
        self._chunks.update(chunks)

    def families(self) -> list[MetricFamily]:
        """What is shown."""
        return [
            family(REQUESTS, dict(self._ends)),
            family(DUPLICATES_ANSWERED, dict(self._duplicates)),
            by_label(READ_AGAIN_ANSWERED, self._read_again),
            family(DEAD_LETTERS, dict(self._letters)),
            one(SKIPPED, self._skipped),
            by_label(LOST_AT_COMMIT, self._lost),
            *(self._histogram(what, metric) for what, metric in _MEASURED.items()),
            family(CHUNK_REQUESTS, {(): histogram_of(CHUNK_REQUESTS.bounds, self._chunks)}),
        ]

    def _histogram(self, what: int, metric: Metric) -> MetricFamily:
        return family(
            metric,
            {
                (kind,): HistogramValue(tuple(buckets), self._sums.get((measured, kind), 0.0))
                for (measured, kind), buckets in self._buckets.items()
                if measured == what
            },
        )
