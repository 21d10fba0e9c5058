"""The list keeps to Prometheus's customs, and the page is written from it."""

from __future__ import annotations

import re
from pathlib import Path

from feedback.metrics import names
from feedback.metrics.names import METRICS, Metric, MetricKind
from feedback.metrics.reference import metrics_page

PAGE = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
COUNTERS_OF_OTHERS = ("_total", "_bucket", "_count", "_sum", "_created", "_info")


def test_names_are_as_prometheus_wants_them() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"oncepool(_[a-z]+)+", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER), metric.name
        assert metric.help.endswith("."), metric.name
        assert not {"job", "instance", "le"} & set(metric.labels), metric.name
        assert (metric.kind is MetricKind.HISTOGRAM) == bool(metric.bounds), metric.name
        if metric.kind is MetricKind.GAUGE and metric.name != "oncepool_info":
            assert not metric.name.endswith(COUNTERS_OF_OTHERS), metric.name


def test_each_name_stands_once() -> None:
    listed = [one for one in vars(names).values() if isinstance(one, Metric)]
    assert len(METRICS) == len(listed)
    samples = [name for metric in METRICS.values() for name in metric.samples]
    assert len(samples) == len(set(samples))


def test_the_page_is_written_from_the_list() -> None:
    assert PAGE.read_text() == metrics_page(), (
        "python -m feedback.metrics.reference > docs/metrics.md"
    )
