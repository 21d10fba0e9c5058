"""What an instance says of itself each second, for its registration and its metrics."""

from __future__ import annotations

from typing import Any, Final

from consumer.intake.ports import ServicePool
from consumer.intake.stats import LoopStats

NAMED: Final = 10
"""Partitions that are named."""


def facts(loop: LoopStats, workers: ServicePool) -> dict[str, Any]:
    """Of the loop and of the pool, as it crosses the channel: names -> JSON values."""
    pool = workers.stats()
    return {
        "joined": loop.joined,
        "assigned": loop.assigned,
        "missing_topics": loop.missing_topics,
        "partitions_without_start": len(loop.without_start),
        "without_start": [f"{topic}/{n}" for topic, n in loop.without_start[:NAMED]],
        "paused": [str(reason) for reason in loop.paused],
        "held": loop.held,
        "in_hand": workers.in_hand,
        "queued": pool.queued,
        "running": pool.running,
        "workers": pool.workers,
        "workers_free": pool.workers_free,
        "workers_wanted": pool.workers_wanted,
        "workers_start": workers.workers_start,
        "workers_connect": not pool.cut_off,
        "at_once": pool.at_once,
        "needs": pool.needs,
        "limits_number": pool.limits_number,
        "types": workers.types,
        "running_requests": workers.running_requests(),
        "deaths": pool.deaths,
        "deaths_by_cause": pool.deaths_by_cause,
        "worker_states": pool.worker_states,
        "counts": loop.counts,
        "lost_at_commit": sum(loop.lost.values()),
        "read_again": loop.counts.get("read again", 0),
    }
