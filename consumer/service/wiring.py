"""Makes the pool of an instance from its settings: what its child processes are told."""

from __future__ import annotations

import secrets
import socket
from typing import Any

from consumer.config.settings import Settings
from consumer.intake.kafka_properties import broker_properties
from processing.logs import get_logger
from processing.pool.supervisor import Supervisor
from processing.settings import MaintenanceSettings, PoolSettings, WorkerSettings

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
        instance=instance,
        database_url=settings.database_url,
        schema=settings.database_schema,
        redis_url=settings.redis_url,
        redis_prefix=settings.redis_prefix,
        log=log,
        migrate=settings.migrate_on_start,
        health_host=settings.health_host,
        health_port=settings.health_port,
        sweep_interval=settings.sweep_interval,
        lease=settings.lease,
        results_topic=settings.kafka_results_topic,
        results_kafka=broker_properties(settings),
    )
    pool = PoolSettings(
        workers=settings.workers,
        ordering=settings.ordering,
        instance=instance,
        max_in_hand=settings.max_in_hand,
        lease=settings.lease,
        max_due=max(1, settings.max_in_hand // 2),
        max_due_bytes=int(settings.max_in_hand_bytes) // 2,
    )
    worker = _worker(settings, instance, log)
    return Supervisor(pool, worker, maintenance, get_logger("oncepool.pool"))


def _worker(settings: Settings, instance: str, log: dict[str, Any]) -> WorkerSettings:
    return WorkerSettings(
        app=settings.app,
        database_url=settings.database_url,
        redis_url=settings.redis_url,
        redis_prefix=settings.redis_prefix,
        executor={
            "ordering": settings.ordering,
            "schema": settings.database_schema,
            "default_timeout": settings.request_timeout,
            "max_payload": int(settings.max_payload),
            "lease": settings.lease,
            "lock_timeout": settings.database_lock_timeout,
            "statement_timeout": settings.database_statement_timeout,
            "prepare_threshold": PREPARE_AFTER if settings.database_prepare else None,
            "instance": instance,
            "results": bool(settings.kafka_results_topic),
            "results_duplicates": settings.results_duplicates,
        },
        log=log,
        max_requests=settings.worker_max_requests,
        max_rss=int(settings.worker_max_rss),
        memory_limit=int(settings.worker_memory_limit),
    )
