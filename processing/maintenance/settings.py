"""What the clerk has to know; apart from the clerk, as the main process imports only this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from feedback.status.status import DEFAULT_TTL


@dataclass(frozen=True, slots=True)
class ClerkSettings:
    """Crosses the channel as a dict, in the first frame."""

    instance: str
    """Id of this instance, unique among all that share the prefix."""
    database_url: str
    schema: str
    redis_url: str
    redis_prefix: str
    log: dict[str, Any]
    """Arguments of `processing.logs.configure`."""
    migrate: bool = False
    """Create or upgrade the journal at the start."""
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    """0 takes any free port; None serves nothing."""
    sweep_interval: float = 10.0
    """Seconds between two sweeps of expired claims."""
    register_interval: float = 5.0
    register_ttl: int = 15
    """Seconds that the registration outlives a renewal."""
    limits_interval: float = 1.0
    """Seconds between two looks at the limits and at who else there is."""
    stale_after: float = 10.0
    """Seconds without a beat of the main process after which it is not alive."""
    hung_after: float = 15.0
    """Seconds after which a database that does not answer a statement counts as away."""
    status_ttl: int = DEFAULT_TTL
    """Seconds that statuses which the clerk writes live; it doesn't know the types' own."""
    lease: float = 60.0
    """Seconds that the claim of a call outside lives unless it is renewed."""
    claim_pause: float = 0.05
    """Seconds after a claim that found nothing; doubles up to one second, where that is more."""
    results_topic: str = ""
    """Where result records go; empty = there are none."""
    results_kafka: dict[str, Any] = field(default_factory=dict)
    """librdkafka properties of the brokers that have this topic."""
