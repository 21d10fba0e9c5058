"""Maintenance as a real process, on a real PostgreSQL and Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from feedback.status.redis_store import RedisStatusStore
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.maintenance import LOG, MaintenanceProcess, StartMaintenance


@pytest.fixture
def settings(stack: Stack, prefix: str) -> MaintenanceSettings:
    return MaintenanceSettings(
        instance="here-1",
        database_url=stack.database,
        schema="not_made",
        redis_url=stack.redis,
        redis_prefix=prefix,
        log=LOG,
        health_port=0,
        register_interval=0.1,
        register_ttl=60,
        limits_interval=0.1,
        unknown_left=0.0,
        stale_after=600.0,  # tests say something of the main process when that is what they test
    )


@pytest.fixture
def start(settings: MaintenanceSettings) -> Iterator[StartMaintenance]:
    processes: list[MaintenanceProcess] = []

    def make(**changes: object) -> MaintenanceProcess:
        processes.append(MaintenanceProcess(replace(settings, **changes)))  # type: ignore[arg-type]
        return processes[-1]

    yield make
    for process in processes:
        process.close()


@pytest.fixture
def ready(start: StartMaintenance, schema: str) -> StartMaintenance:
    """Starts one on the test's journal, and waits until it is ready."""

    def make(instance: str = "here", **changes: object) -> MaintenanceProcess:
        maintenance = start(instance=instance, schema=schema, **changes)
        assert maintenance.ready().schema == "ok"
        return maintenance

    return make


@pytest.fixture
def statuses(stack: Stack, prefix: str) -> Iterator[RedisStatusStore]:
    store = RedisStatusStore(stack.redis, prefix, timeout=30.0)
    yield store
    store.close()
