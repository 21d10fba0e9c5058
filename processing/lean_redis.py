"""Loads the client of Redis for the processes beside main, before anything else of them does.

Where OpenTelemetry's SDK is installed the client loads its metrics, for an annotation alone: an
eighth of what a start costs. Metrics of Redis that an app turns on are made without that.
"""

from __future__ import annotations

from processing.left_out import not_installed

with not_installed("opentelemetry.sdk.metrics"):
    import redis  # noqa: F401 - for whoever imports it next
