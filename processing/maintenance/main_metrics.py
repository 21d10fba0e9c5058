"""What is shown of the main process: from what its last heartbeat says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from feedback.metrics.families import BoundedLabel, MetricFamily, by_label, family, one
from feedback.metrics.names import (
    BACKLOG,
    BROKERS_UP,
    COMMIT_ERRORS,
    COMMITS,
    COMMITS_SENT_AGAIN,
    CONFIRMED,
    DROPPED,
    INTAKE_CLOSED,
    JOINED,
    LAG,
    PARTITIONS,
    PAUSES,
    POLLED,
    READ_AGAIN,
    REBALANCES,
    REJOINS,
    WITHOUT_START,
    WORKER_DEATHS,
    WORKERS,
    WORKERS_WANTED,
    Metric,
)
from processing.maintenance.health import brokers_up

CLOSED_BY: Final = ("full", "database", "workers", "draining")
DEATHS: Final = (
    *("start", "timeout", "cancelled", "shutdown", "exit"),
    *("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS"),
)
"""Shown from the start, at 0."""
MOST_CAUSES: Final = 50
"""Names of errors, signals and causes: few, though no list of ours has them all."""
_COUNTED: Final[Mapping[str, Metric]] = {
    "polled": POLLED,
    "confirmed": CONFIRMED,
    "read again": READ_AGAIN,
    "commits": COMMITS,
    "sent again": COMMITS_SENT_AGAIN,
    "rejoins": REJOINS,
    "pauses": PAUSES,
}
_NAMED: Final[Mapping[str, Metric]] = {"drop:": DROPPED, "error:": COMMIT_ERRORS}
"""What the names of counts begin with that have a label's value behind it."""


class MainMetrics:
    """Reads heartbeats; remembers which values of labels were shown."""

    def __init__(self) -> None:
        self._labels = {prefix: BoundedLabel(MOST_CAUSES) for prefix in (*_NAMED, "death")}

    def families(self, facts: Mapping[str, Any]) -> list[MetricFamily]:
        """What is shown; nothing before the first heartbeat."""
        if not facts:
            return []
        counts: Mapping[str, int] = facts.get("counts", {})
        closed = facts.get("paused", ())
        up = brokers_up(facts)
        return [
            *(one(metric, counts.get(name, 0)) for name, metric in _COUNTED.items()),
            *(self._named(metric, prefix, counts) for prefix, metric in _NAMED.items()),
            by_label(REBALANCES, _rebalances(counts)),
            by_label(INTAKE_CLOSED, {reason: float(reason in closed) for reason in CLOSED_BY}),
            one(JOINED, bool(facts.get("joined"))),
            family(BROKERS_UP, {}) if up is None else one(BROKERS_UP, up),
            one(PARTITIONS, facts.get("assigned", 0)),
            one(WITHOUT_START, facts.get("partitions_without_start", 0)),
            by_label(LAG, facts.get("lag", {})),
            by_label(BACKLOG, {s: facts.get(s, 0) for s in ("held", "queued", "running")}),
            by_label(WORKERS, facts.get("worker_states", {})),
            one(WORKERS_WANTED, facts.get("workers_wanted", 0)),
            self._named(WORKER_DEATHS, "death", _deaths(facts.get("deaths_by_cause", {}))),
        ]

    def _named(self, metric: Metric, prefix: str, counts: Mapping[str, int]) -> MetricFamily:
        label, found = self._labels[prefix], dict[str, float]()
        for name, n in counts.items():
            if prefix in _NAMED and not name.startswith(prefix):
                continue
            value = label(name.removeprefix(prefix))
            found[value] = found.get(value, 0) + n
        return by_label(metric, found)


def _deaths(causes: Mapping[str, int]) -> dict[str, int]:
    return {**dict.fromkeys(DEATHS, 0), **causes}


def _rebalances(counts: Mapping[str, int]) -> dict[str, float]:
    lost = counts.get("partitions lost", 0)
    return {
        "assigned": counts.get("assigned", 0),
        "revoked": max(0, counts.get("revoked", 0) - lost),
        "lost": lost,
    }
