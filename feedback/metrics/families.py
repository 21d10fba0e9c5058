"""What is shown: each metric with its values, checked against the list. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from feedback.metrics.names import OTHER, Metric, MetricKind

Labels: TypeAlias = tuple[str, ...]
"""Values, in the order of the metric's labels."""


class HistogramValue(NamedTuple):
    """How often which size was seen."""

    buckets: Sequence[float]
    """Observations in each bucket by itself; the last one has no upper bound."""
    sum: float


class MetricFamily(NamedTuple):
    """A metric and its values."""

    metric: Metric
    values: Mapping[Labels, float | HistogramValue]


def family(metric: Metric, values: Mapping[Labels, float | HistogramValue]) -> MetricFamily:
    """Raises ValueError where values do not fit what the list says of the metric."""
    for labels, value in values.items():
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} has labels {metric.labels}, not {labels}")
        counted = isinstance(value, HistogramValue)
        fits = counted == (metric.kind is MetricKind.HISTOGRAM)
        if isinstance(value, HistogramValue):
            fits = fits and len(value.buckets) == len(metric.bounds) + 1
        if not fits:
            raise ValueError(f"{metric.name} is a {metric.kind}: {value} is none")
    return MetricFamily(metric, values)


def one(metric: Metric, value: float) -> MetricFamily:
    """A metric without labels."""
    return family(metric, {(): value})


def by_label(metric: Metric, values: Mapping[str, float]) -> MetricFamily:
    """A metric with one label."""
    return family(metric, {(label,): value for label, value in values.items()})


def histogram_of(bounds: Sequence[float], sizes: Mapping[int, int]) -> HistogramValue:
    """Of sizes: size -> how often it was seen."""
    buckets = [0.0] * (len(bounds) + 1)
    for size, number in sizes.items():
        buckets[bisect_left(bounds, size)] += number
    return HistogramValue(buckets, float(sum(size * number for size, number in sizes.items())))


class BoundedLabel:
    """Values of a label that come from outside: the first so many are shown, the rest is `other`.

    Those that are `known` always are, and don't count.
    """

    def __init__(self, most: int, known: Iterable[str] = ()) -> None:
        self._most = most
        self._known = set(known)
        self._seen: set[str] = set()

    def know(self, values: Iterable[str]) -> None:
        """These are always shown from now on. The caller bounds them."""
        self._known.update(values)

    def __call__(self, value: str) -> str:
        """What is shown of a value."""
        if value in self._known or value in self._seen:
            return value
        if len(self._seen) >= self._most:
            return OTHER
        self._seen.add(value)
        return value
