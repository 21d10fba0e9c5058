"""Maintenance as a real process, on a real PostgreSQL and Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from feedback.status.redis_store import RedisStatusStore
from processing.maintenance.settings import ClerkSettings
from stack import Stack
from tests.support.clerk import LOG, ClerkProcess, StartClerk


@pytest.fixture
def settings(stack: Stack, prefix: str) -> ClerkSettings:
    return ClerkSettings(
        instance="here-1",
        database_url=stack.database,
        schema="not_made",
        redis_url=stack.redis,
        redis_prefix=prefix,
        log=LOG,
        health_port=0,
        register_interval=0.1,
        register_ttl=2,
        limits_interval=0.1,
    )


@pytest.fixture
def start(settings: ClerkSettings) -> Iterator[StartClerk]:
    clerks: list[ClerkProcess] = []

    def make(**changes: object) -> ClerkProcess:
        clerks.append(ClerkProcess(replace(settings, **changes)))  # type: ignore[arg-type]
        return clerks[-1]

    yield make
    for clerk in clerks:
        clerk.close()


@pytest.fixture
def ready(start: StartClerk, schema: str) -> StartClerk:
    """Starts one on the test's journal, and waits until it is ready."""

    def make(instance: str = "here", **changes: object) -> ClerkProcess:
        clerk = start(instance=instance, schema=schema, **changes)
        assert clerk.ready()["schema"] == "ok"
        return clerk

    return make


@pytest.fixture
def statuses(stack: Stack, prefix: str) -> Iterator[RedisStatusStore]:
    store = RedisStatusStore(stack.redis, prefix, timeout=5.0)
    yield store
    store.close()
