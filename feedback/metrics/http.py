"""What a gateway counts of the calls that it answers. Pure."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from typing import Final

from feedback.metrics.families import (
    BoundedLabel,
    HistogramValue,
    Labels,
    MetricFamily,
    family,
)
from feedback.metrics.names import GATEWAY_REQUESTS, GATEWAY_SECONDS, HTTP_BOUNDS

MOST_ROUTES: Final = 100
METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
NO_ROUTE: Final = "none"
"""The route of a call to a path that there is not."""


class HttpMetrics:
    """Follows the gateway's `GatewayEvents`. Any thread may tell and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._routes = BoundedLabel(MOST_ROUTES)
        self._methods = BoundedLabel(0, METHODS)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._buckets: dict[str, list[float]] = {}
        self._sums: dict[str, float] = {}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A call was answered. `route` is as in the OpenAPI document, "" where there is none."""
        with self._lock:
            route = self._routes(route or NO_ROUTE)
            self._counts[route, self._methods(method), str(status)] += 1
            buckets = self._buckets.setdefault(route, [0.0] * (len(HTTP_BOUNDS) + 1))
            buckets[bisect_left(HTTP_BOUNDS, seconds)] += 1
            self._sums[route] = self._sums.get(route, 0.0) + seconds

    def families(self) -> list[MetricFamily]:
        """What is shown."""
        with self._lock:
            seconds: dict[Labels, float | HistogramValue] = {
                (route,): HistogramValue(tuple(buckets), self._sums[route])
                for route, buckets in self._buckets.items()
            }
            return [
                family(GATEWAY_REQUESTS, dict(self._counts)),
                family(GATEWAY_SECONDS, seconds),
            ]
