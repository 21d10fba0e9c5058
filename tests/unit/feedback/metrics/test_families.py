"""What is shown fits the list, is bounded, and is read by Prometheus's own parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from feedback.metrics import exposition as exposition_module
from feedback.metrics.exposition import available, exposition, shown
from feedback.metrics.families import BoundedLabel, HistogramValue, family, histogram_of, one
from feedback.metrics.names import (
    CHUNK_REQUESTS,
    DATABASE_UP,
    METRICS,
    REQUESTS,
    SKIPPED,
    Metric,
    MetricKind,
)
from tests.support.metrics import of_all_programs, values
from tests.support.promql import series_of

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    "metric,labels,value",
    [
        (REQUESTS, ("pay",), 1.0),
        (REQUESTS, (), 1.0),
        (SKIPPED, ("pay",), 1.0),
        (SKIPPED, (), HistogramValue([1.0], 1.0)),
        (CHUNK_REQUESTS, (), 1.0),
        (CHUNK_REQUESTS, (), HistogramValue([1.0], 1.0)),
    ],
)
def test_what_does_not_fit_the_list_is_refused(
    metric: Metric, labels: tuple[str, ...], value: float | HistogramValue
) -> None:
    with pytest.raises(ValueError, match=metric.name):
        family(metric, {labels: value})


def test_a_label_shows_the_first_values_and_those_that_are_known() -> None:
    label = BoundedLabel(2, ["known"])
    assert [label(v) for v in ("a", "b", "c", "a", "known", "d")] == [
        "a", "b", "other", "a", "known", "other",
    ]  # fmt: skip
    label.know(["d"])
    assert label("d") == "d"


def test_sizes_become_a_histogram() -> None:
    assert histogram_of((1.0, 5.0), {1: 3, 2: 1, 5: 1, 6: 2}) == HistogramValue([3, 2, 2], 22.0)


def test_the_text_has_each_metric_of_the_list_and_no_other() -> None:
    found = series_of(exposition(of_all_programs()).decode())
    labels = {
        name: {*metric.labels, *(["le"] if name.endswith("_bucket") else [])}
        for metric in METRICS.values()
        for name in metric.samples
    }
    assert {one.name for one in found} == labels.keys()
    assert [one for one in found if one.labels.keys() != labels[one.name]] == []


def test_buckets_add_up_and_the_last_one_has_all() -> None:
    value = HistogramValue([2.0, *[0.0] * 7, 1.0, 4.0], 99.0)
    lines = exposition([family(CHUNK_REQUESTS, {(): value})]).decode().splitlines()
    assert [line.rpartition(" ")[2] for line in lines if "_bucket" in line] == [
        *["2.0"] * 8, "3.0", "7.0",
    ]  # fmt: skip
    assert "oncepool_chunk_requests_count 7.0" in lines
    assert "oncepool_chunk_requests_sum 99.0" in lines


def test_types_beyond_the_apps_are_other() -> None:
    found = values(of_all_programs(), "oncepool_run_seconds")
    assert found.keys() == {("pay",), ("other",)}


def test_text_of_labels_is_escaped() -> None:
    text = exposition([family(REQUESTS, {('a"\n\\', "done", "ok"): 1.0})]).decode()
    assert [dict(one.labels) for one in series_of(text)] == [
        {"type": 'a"\n\\', "state": "done", "code": "ok"}
    ]


def test_nothing_is_shown_without_a_port_or_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (available(), shown(0), shown(8080), shown(None)) == (True, True, True, False)
    monkeypatch.setattr(exposition_module, "PACKAGE", "no_such_package")
    assert (available(), shown(8080)) == (False, False)


def test_the_package_is_loaded_by_the_first_scrape() -> None:
    script = (
        "import sys\n"
        "import processing.worker.executor, processing.maintenance.__main__\n"
        "import consumer.relay.process\n"
        "import consumer.service.wiring\n"
        "from feedback.metrics.exposition import exposition, shown\n"
        "assert shown(0) and 'prometheus_client' not in sys.modules\n"
        "exposition([])\n"
        "assert 'prometheus_client' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_gauges_of_one_value() -> None:
    assert DATABASE_UP.kind is MetricKind.GAUGE
    assert exposition([one(DATABASE_UP, True)]).decode().endswith("oncepool_database_up 1.0\n")
