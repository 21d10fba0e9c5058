"""What a gateway counts of its answers."""

from __future__ import annotations

from feedback.metrics.families import HistogramValue
from feedback.metrics.http import MOST_ROUTES, HttpMetrics
from tests.support.metrics import busy_gateway, values


def test_answers_are_counted_by_route_method_and_status() -> None:
    metrics = busy_gateway()
    metrics.answered("/requests/{id}", "GET", 503, 90.0)
    assert values(metrics.families(), "oncepool_gateway_requests_total") == {
        ("/requests/{type}", "POST", "202"): 1,
        ("/requests/{id}", "GET", "503"): 2,
        ("none", "GET", "404"): 1,
    }
    value = values(metrics.families(), "oncepool_gateway_request_seconds")["/requests/{id}",]
    assert isinstance(value, HistogramValue)
    assert (sum(value.buckets), value.buckets[-1], value.sum) == (2, 1, 94.0)


def test_neither_routes_nor_methods_are_without_a_bound() -> None:
    metrics = HttpMetrics()
    for n in range(MOST_ROUTES + 50):
        metrics.answered(f"/made/up/{n}", f"METHOD{n}", 404, 0.0)
    found = values(metrics.families(), "oncepool_gateway_requests_total")
    assert len(found) == MOST_ROUTES + 1
    assert {labels[1] for labels in found} == {"other"}
