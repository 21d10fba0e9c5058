"""What the parts of an instance have to know: plain values, as the main process makes them.

Those of workers and of the maintenance process cross the channel as dicts, in the first frame. They
stand here and not with who reads them, so that the main process loads no database driver and no
user code to say them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from feedback.status.status import DEFAULT_TTL

Ordering: TypeAlias = Literal["key", "partition", "none"]
"""Requests with what in common run one after the other."""
MAX_IN_HAND: Final = 10_000
"""Unless somebody sets another one, here or in the settings of the service; so the next one."""
LOCK_TIMEOUT: Final = 10.0
CHECK_AFTER: Final = 30.0


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """What the pool is to be."""

    workers: int
    ordering: Ordering = "key"
    instance: str = "local"
    lease: float = 60.0
    """Seconds that the claim of a call outside lives unless it is renewed."""
    kill_gap: float = 2.0
    """Seconds between SIGTERM and SIGKILL."""
    start_timeout: float = 60.0
    """Seconds a worker may take to say that it is ready."""
    stop_timeout: float = 60.0
    """Seconds a worker that is replaced may take to end, once it has nothing left to do."""
    max_in_hand: int = MAX_IN_HAND
    """Requests committed and not finished, at most; those of one limited type fill part of it."""
    max_due: int = 0
    """Rows of the waiting queue in hand, at most, besides those; 0: none are claimed."""
    max_due_bytes: int = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """How chunks are run. Times in seconds."""

    ordering: Ordering = "key"
    schema: str = "oncepool"
    segment: int = 25
    default_timeout: float = 300.0
    max_payload: int = 1024 * 1024
    lease: float = 60.0
    lock_timeout: float = LOCK_TIMEOUT
    statement_timeout: float = 0.0
    prepare_threshold: int | None = 5
    instance: str = "local"
    """Whose claims of waiting rows it runs."""
    results: bool = False
    """Whether there is a results topic."""
    results_duplicates: bool = False
    """Whether resends that were answered go there, too."""
    metrics: bool = False
    """Whether somebody shows what requests took."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker has to know; crosses the channel as a dict."""

    app: str
    database_url: str
    redis_url: str
    redis_prefix: str
    executor: dict[str, Any]
    log: dict[str, Any]
    name: str = "worker"
    """What names this process in log lines."""
    max_requests: int = 0
    """Requests after which the worker is replaced; 0: never."""
    max_rss: int = 0
    """Resident bytes above which the worker is replaced; 0: no limit."""
    memory_limit: int = 0
    """Bytes of data that the process may allocate before MemoryError; 0: no limit."""
    tracing: bool = False
    kafka_group: str = ""
    """The consumer group, for spans."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
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
    served: bool = False
    """This instance has used the journal: the process takes the place of one that died."""
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    """0 takes any free port; None serves nothing."""
    metrics: bool = False
    """Whether /metrics is served there."""
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
    """Seconds that its statuses live; it doesn't know the types' own."""
    lease: float = 60.0
    """Seconds that the claim of a call outside lives unless it is renewed."""
    check_after: float = CHECK_AFTER
    """Seconds after which the check of a request in doubt is asked; each time they double."""
    claim_pause: float = 0.05
    """Seconds after a claim that found nothing; doubles up to one second, where that is more."""
    unknown_left: float = 30.0
    """Seconds that a due row of a type without a handler here is left to other instances."""
    results_topic: str = ""
    """Where result records go; empty = there are none."""
    results_kafka: dict[str, Any] = field(default_factory=dict)
    """librdkafka properties of the brokers that have this topic."""
