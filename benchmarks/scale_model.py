"""A model of many consumers, from what a request costs each process. Pure arithmetic.

A process saturates where its microseconds a request fill its cores. What all consumers share
(PostgreSQL, Redis, Kafka) is on machines of its own there, so it is the cores given to it that
count: Redis runs its commands on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CORES = {"PostgreSQL": 32, "Valkey": 1, "broker": 3 * 8}
"""Of the services that all share: one PostgreSQL, one Redis, three brokers."""
OWN = ("main", "worker", "maintenance")
"""Parts that each consumer has."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How far one shared service goes."""

    service: str
    rate: float
    """Requests a second that saturate it."""
    consumers: float
    """Consumers that do so."""


def consumer_rate(cost: Mapping[str, float], workers: int) -> float:
    """Requests a second of one consumer with a core for each of its processes.

    `cost` is part -> microseconds of CPU a request. Its workers share theirs; main has one core.
    Raises ValueError where no part of it has a cost.
    """
    cores = {part: workers if part == "worker" else 1 for part in OWN}
    return min(number * 1e6 / cost[part] for part, number in cores.items() if cost.get(part))


def limits(
    cost: Mapping[str, float], workers: int, cores: Mapping[str, float] = CORES
) -> list[Limit]:
    """The shared services, the first to saturate first; without those that cost nothing."""
    one = consumer_rate(cost, workers)
    found = [
        Limit(service, number * 1e6 / cost[service], number * 1e6 / cost[service] / one)
        for service, number in cores.items()
        if cost.get(service)
    ]
    return sorted(found, key=lambda limit: limit.rate)


def group_rate(
    cost: Mapping[str, float],
    consumers: int,
    workers: int,
    cores: Mapping[str, float] = CORES,
) -> float:
    """Requests a second of so many consumers: theirs, or what the first service bears."""
    own = consumers * consumer_rate(cost, workers)
    return min([own, *(limit.rate for limit in limits(cost, workers, cores))])
