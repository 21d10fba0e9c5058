"""Metrics as each program shows them, made of the product's own parts without any service."""

from __future__ import annotations

import http.client
import shutil
import subprocess
from collections.abc import Iterable

from feedback.journal.open_rows import OpenRows
from feedback.metrics.durations import DONE, RUN, WAIT, Durations
from feedback.metrics.families import MetricFamily
from feedback.metrics.http import HttpMetrics
from feedback.metrics.names import METRICS, ShownBy
from feedback.outbox.relay.depth import OutboxDepth
from feedback.outbox.relay.loop import LoopState
from processing.ipc.frames import Measurements
from processing.maintenance.health import Health
from processing.maintenance.instance_metrics import InstanceMetrics
from tests.support.promql import Series, series_of

FACTS = {
    "joined": True, "assigned": 3, "partitions_without_start": 1, "paused": ["full"], "held": 4,
    "queued": 5, "running": 6,
    "workers_wanted": 2, "types": ["pay"], "lag": {"orders": 70_000},
    "brokers_away_for": 70.0,
    "worker_states": {"starting": 0, "idle": 1, "busy": 1, "suspended": 0, "leaving": 0},
    "deaths_by_cause": {"SIGKILL": 2},
    "counts": {
        "polled": 90, "confirmed": 80, "read again": 3, "commits": 9, "sent again": 1,
        "rejoins": 1, "pauses": 2, "drop:unowned": 4, "drop:stopping": 6, "error:_TRANSPORT": 2,
        "assigned": 5, "revoked": 4, "partitions lost": 1, "of another day": 1,
    },
}  # fmt: skip
"""A heartbeat of a busy instance."""

COUNTS = {
    ("pay", "done", "ok"): 10, ("pay", "failed", "handler_error"): 2, ("pay", "dead", "retry"): 1,
    ("pay", "in_doubt", "timeout"): 1, ("pay", "waiting", "unknown_type"): 1,
    ("pay", "done", "duplicate"): 4, ("pay", "done", "read_again"): 3,
    ("pay", "dead_letter", "conflict"): 1, ("", "dead_letter", "malformed"): 2,
    ("", "skipped", "skip"): 5, ("pay", "lost", "at_commit"): 1,
}  # fmt: skip
JOURNAL = [
    OpenRows("waiting", 3, None), OpenRows("due", 2, 400.0), OpenRows("in_doubt", 1, 9.0),
    OpenRows("dead", 1, 70.0), OpenRows("dead_letter", 2, 80.0),
]  # fmt: skip
DEPTHS = {
    "default": [
        OutboxDepth("unsent", 3, 90.0), OutboxDepth("sent", 2, 4e3), OutboxDepth("dead", 1, 1.0),
    ]
}  # fmt: skip
STATES = [
    LoopState("default", 0.0, None, "no broker answers", 12, sender="default"),
    LoopState(
        "default answers",
        0.0,
        None,
        None,
        9,
        sends=False,
        sender="default",
        service="statuses",
        again=2,
    ),
    LoopState(
        "default results", 0.0, None, "no", 4, sends=False, sender="default", service="results"
    ),
]


def measured() -> Measurements:
    """What workers report of two chunks, one of a type that nobody has."""
    durations = Durations()
    for what in (RUN, WAIT, DONE):
        durations.add("pay", what, [0.002, 0.3, 9000.0])
        durations.add("made up", what, [0.002])
    return Measurements(["pay"], durations.counts, {3: 1, 1: 1}, 6)


def busy_instance() -> InstanceMetrics:
    """One that has something of everything."""
    health = Health(10.0, lambda: 100.0)
    health.heartbeat(FACTS)
    health.database(up=True, detail="answers")
    metrics = InstanceMetrics("i-1", health, lambda: 2, lambda: 100.0)
    metrics.heartbeat(FACTS)
    metrics.count(COUNTS)
    metrics.measured(measured())
    metrics.journal(JOURNAL)
    return metrics


def busy_gateway() -> HttpMetrics:
    """One that has answered."""
    metrics = HttpMetrics()
    metrics.answered("/requests/{type}", "POST", 202, 0.01)
    metrics.answered("/requests/{id}", "GET", 503, 4.0)
    metrics.answered("", "GET", 404, 0.001)
    return metrics


def of_all_programs() -> list[MetricFamily]:
    """What the three show."""
    # Not at the top: whoever looks at instances loads no driver.
    from consumer.relay.metrics import RelayMetrics

    relay = RelayMetrics(lambda: STATES, lambda: DEPTHS, lambda: 50.0, lambda work: work())
    return [*busy_instance().families(), *relay.families(), *busy_gateway().families()]


def values(families: Iterable[MetricFamily], name: str) -> dict[tuple[str, ...], object]:
    """The values of one metric."""
    (found,) = (one.values for one in families if one.metric.name == name)
    return dict(found)


def scrape(port: int) -> str:
    """What a program shows at its port. Raises OSError, AssertionError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    assert answer.status == 200, text
    return text


def scraped(port: int) -> list[Series]:
    """The series of that."""
    return series_of(scrape(port))


def shown(port: int, name: str, **labels: str) -> float:
    """The sum of what a program shows of a name, where these labels have these values."""
    wanted = labels.items()
    return sum(
        one.value for one in scraped(port) if one.name == name and wanted <= one.labels.items()
    )


def check_with_promtool(text: str) -> None:
    """Prometheus's own look at a scrape, where its tool is installed."""
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def listed(program: ShownBy) -> dict[str, str]:
    """What the list has of a program: name -> kind."""
    return {m.name: str(m.kind) for m in METRICS.values() if m.shown_by is program}
