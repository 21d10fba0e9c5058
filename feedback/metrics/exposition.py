"""Prometheus's text of what is shown: the one place that loads prometheus-client, once it is asked.

One process of each program adds everything up and answers, so nothing is shared between processes
but what they tell each other anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from feedback.metrics.families import HistogramValue, MetricFamily
from feedback.metrics.names import MetricKind

if TYPE_CHECKING:
    from prometheus_client.core import Metric as PrometheusMetric

PACKAGE: Final = "prometheus_client"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MISSING: Final = (
    "there are no metrics: install prometheus-client (pip install 'oncepool[metrics]')\n"
)


def available() -> bool:
    """Whether the package is installed; it is not loaded."""
    return find_spec(PACKAGE) is not None


def shown(health_port: int | None) -> bool:
    """Whether a program with this setting shows metrics; else nothing is measured."""
    return health_port is not None and available()


def exposition(families: Iterable[MetricFamily]) -> bytes:
    """The text, of CONTENT_TYPE. Raises ImportError where prometheus-client is missing."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector([_prometheus(one) for one in families]))
    return generate_latest(registry)


class _Collector:
    def __init__(self, metrics: list[PrometheusMetric]) -> None:
        self._metrics = metrics

    def describe(self) -> list[PrometheusMetric]:
        return []  # else it is asked for everything once more as it is registered

    def collect(self) -> list[PrometheusMetric]:
        return self._metrics


def _prometheus(family: MetricFamily) -> PrometheusMetric:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    metric = family.metric
    made: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    if metric.kind is MetricKind.HISTOGRAM:
        made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    elif metric.kind is MetricKind.COUNTER:
        made = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in family.values.items():
        if isinstance(made, HistogramMetricFamily):
            assert isinstance(value, HistogramValue)  # noqa: S101 - `family` has looked
            made.add_metric(labels, _buckets(metric.bounds, value), value.sum)
        else:
            assert not isinstance(value, HistogramValue)  # noqa: S101 - as above
            made.add_metric(labels, value)
    return made


def _buckets(bounds: tuple[float, ...], value: HistogramValue) -> list[tuple[str, float]]:
    """As Prometheus has them: each counts those below it, too."""
    from prometheus_client.utils import floatToGoString

    names = [*map(floatToGoString, bounds), "+Inf"]
    so_far, found = 0.0, []
    for name, number in zip(names, value.buckets, strict=True):
        so_far += number
        found.append((name, so_far))
    return found
