"""Makes the pool of an instance from its settings: what its child processes are told."""

from __future__ import annotations

import dataclasses
import secrets
import socket
from typing import Any

from pydantic import ByteSize

from consumer.config.settings import Settings
from consumer.intake.kafka_properties import producer_properties
from feedback.metrics.exposition import shown
from processing.logs import get_logger
from processing.pool.supervisor import Supervisor
from processing.settings import ExecutorSettings, MaintenanceSettings, PoolSettings, WorkerSettings

LONGEST_HOST = 40
PREPARE_AFTER = 5
"""Times that a statement runs before it is prepared."""


def instance_id() -> str:
    """An id that no other instance has; it goes into every commit's token."""
    host = socket.gethostname().split(".")[0].replace(";", "")[:LONGEST_HOST]
    return f"{host}-{secrets.token_hex(4)}"


def make_pool(settings: Settings, instance: str) -> Supervisor:
    """The workers and the maintenance process, not started yet."""
    log = {"log_format": settings.log_format, "level": settings.log_level}
    maintenance = MaintenanceSettings(
        **_same_named(settings, MaintenanceSettings),
        instance=instance,
        schema=settings.database_schema,
        log=log,
        migrate=settings.migrate_on_start,
        results_topic=settings.kafka_results_topic,
        results_kafka=producer_properties(settings),
        metrics=shown(settings.health_port),
    )
    pool = PoolSettings(
        **_same_named(settings, PoolSettings),
        instance=instance,
        start_timeout=settings.worker_start_timeout,
        max_due=max(1, settings.max_in_hand // 2),
        max_due_bytes=int(settings.max_in_hand_bytes) // 2,
    )
    worker = _worker(settings, instance, log)
    return Supervisor(pool, worker, maintenance, get_logger("oncepool.pool"))


def _worker(settings: Settings, instance: str, log: dict[str, Any]) -> WorkerSettings:
    return WorkerSettings(
        **_same_named(settings, WorkerSettings),
        executor={
            **_same_named(settings, ExecutorSettings),
            "schema": settings.database_schema,
            "default_timeout": settings.request_timeout,
            "lock_timeout": settings.database_lock_timeout,
            "statement_timeout": settings.database_statement_timeout,
            "prepare_threshold": PREPARE_AFTER if settings.database_prepare else None,
            "instance": instance,
            "results": bool(settings.kafka_results_topic),
            "metrics": shown(settings.health_port),
        },
        log=log,
        max_requests=settings.worker_max_requests,
        max_rss=int(settings.worker_max_rss),
        memory_limit=int(settings.worker_memory_limit),
    )


def _same_named(settings: Settings, part: type) -> dict[str, Any]:
    """What `part`, a dataclass, has under the name of a setting: it needs no line here.

    Sizes as plain numbers, since nothing else crosses a channel.
    """
    names = Settings.model_fields.keys() & {field.name for field in dataclasses.fields(part)}
    values = {name: getattr(settings, name) for name in sorted(names)}
    return {n: int(v) if isinstance(v, ByteSize) else v for n, v in values.items()}
