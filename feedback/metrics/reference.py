"""Writes docs/metrics.md from the list of names.

    python -m feedback.metrics.reference > docs/metrics.md

A test compares the two, so the page cannot fall behind.
"""

from __future__ import annotations

from typing import Final

from feedback.metrics.names import METRICS, Metric, MetricKind, ShownBy

INTRODUCTION: Final = """\
# Metrics

`oncepool run` and `oncepool relay` show metrics to Prometheus at `/metrics` of their health port,
where `health_port` is set; `oncepool gateway` at its own port, to API keys with the role `read`.
The package has to be there: `pip install 'oncepool[metrics]'`. Without it `/metrics` is an error
that says so (404, of the gateway 501); without a health port `run` and `relay` measure nothing.

```yaml
scrape_configs:
  - job_name: oncepool
    static_configs: [{targets: ["10.0.0.7:9100"]}]
  - job_name: oncepool-gateway
    authorization: {credentials_file: /etc/prometheus/oncepool.key}
    static_configs: [{targets: ["10.0.0.9:8080"]}]
```

One process of each program answers: in an instance the maintenance process, which adds up what
workers and the main process tell it once a second; those who ask within a second of each other
get the same answer. A counter begins at 0 where that process was started anew, as counters of
Prometheus may.

This is all there is: names and labels stand in one list, which this page is written from. No label
has values without a bound. `type` is one of the app's handlers, at most 200 of them; of codes that
handlers bring along 100 are named. What lies beyond is `other`, as are made-up types.

What stands in the journal or in an outbox is the same from each process that shows it: take the
largest, never the sum (`max(oncepool_journal_rows{what="dead"})`). It is looked at every 15 seconds
while somebody scrapes.

Alerts, each with what to do, and a dashboard for Grafana stand in `deploy/`:
[Metrics, alerts and a dashboard](operations.md#metrics-alerts-and-a-dashboard).
"""


def metrics_page() -> str:
    """The page."""
    parts = [INTRODUCTION]
    for program in ShownBy:
        parts.append(f"## {program}\n")
        parts.append("| metric | kind | labels | |\n|---|---|---|---|")
        parts += [_row(metric) for metric in METRICS.values() if metric.shown_by is program]
        parts.append("")
    parts.append("## Buckets\n")
    parts += [
        f"- `{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.bounds)}"
        for metric in METRICS.values()
        if metric.kind is MetricKind.HISTOGRAM
    ]
    return "\n".join(parts) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    print(metrics_page(), end="")  # noqa: T201 - the page is its output
