"""A relay whose user may not write to a topic of its broker, which asks who comes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from feedback import outbox
from feedback.outbox.dead_letters import OutboxFilter, OutboxOperator
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route
from stack import Stack
from stack.places import free_port
from tests.support import run
from tests.support.outbox import Outbox
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

pytestmark = pytest.mark.long  # a broker of its own takes long to start

USER, SECRET = "relay", "correct-horse"
SENDERS = {"default": None, "unwritten": AclOperation.WRITE, "unseen": AclOperation.DESCRIBE}
"""Sender -> what its user may not do with its topic."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Stack, dict[str, str]]]:
    """A stack whose broker has a second listener, and how a relay comes to that one."""
    port = free_port(set())
    made = run.own_stack(
        f"guarded-{uuid.uuid4().hex[:8]}",
        broker_properties={
            "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},"
            f"SASL://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:{port}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required"
                f' user_{USER}="{SECRET}";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # who comes to the plain one
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    yield (
        made,
        {
            "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": SECRET,
        },
    )  # fmt: skip
    made.down(delete=True)


def denied(topic: str, operation: AclOperation | None) -> list[AclBinding]:
    if operation is None:
        return []
    place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    return [AclBinding(*place, f"User:{USER}", "*", operation, AclPermissionType.DENY)]


@contextmanager
def closed_topics(stack: Stack) -> Iterator[tuple[dict[str, str], Any]]:
    """Topics by sender, and what opens them."""
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    topics = {name: f"{name}-{uuid.uuid4().hex[:12]}" for name in SENDERS}
    made = admin.create_topics([NewTopic(topic, num_partitions=1) for topic in topics.values()])
    for one in made.values():
        one.result(30)
    rules = [rule for name, topic in topics.items() for rule in denied(topic, SENDERS[name])]
    for rule in admin.create_acls(rules).values():
        rule.result(30)

    def open_them() -> None:
        every = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None)
        these = AclBindingFilter(*every, AclOperation.ANY, AclPermissionType.ANY)
        [done] = admin.delete_acls([these]).values()
        assert len(done.result(30)) == len(rules)

    yield topics, open_them


def test_what_must_not_be_written_disturbs_no_other_and_goes_once_it_may(
    guarded: tuple[Stack, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, properties = guarded
    schema = f"test_{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    with closed_topics(stack) as (topics, open_them):
        with psycopg.connect(stack.database) as connection:
            migrate(connection, schema, list(SENDERS))
            for name in SENDERS:
                outbox.add(connection, "t", {}, request_id=name, sender=name)
        rows = Outbox(stack.database, schema)

        def found() -> dict[str, tuple[str, str | None]]:
            return {row["id"]: (row["state"], row["code"]) for row in rows.rows()}

        routes = {name: Route(topic, properties) for name, topic in topics.items()}
        with Relay(stack.database, routes, schema=schema) as relay:
            refused = ("unsent", "not_authorised")
            wanted = {"default": ("sent", None), "unwritten": refused, "unseen": refused}
            eventually(lambda: found() == wanted, 60, lambda: f"{found()} {relay.states()}")
            assert ids(stack, topics["default"]) == ["default"]
            assert all(state.other is None for state in relay.states()), relay.states()

            # As after some minutes.
            rows.run("UPDATE :schema.requests SET failures = 7, next_at = now() WHERE failures > 0")
            dead = ("undeliverable", "not_authorised")
            wanted |= {"unwritten": dead, "unseen": dead}
            eventually(lambda: found() == wanted, 60, lambda: f"{found()} {relay.states()}")

            open_them()
            with psycopg.connect(stack.database, autocommit=True) as connection:
                moved = OutboxOperator(connection, schema).retry(OutboxFilter())
                assert [id_ for part in moved for id_ in part] == ["unwritten", "unseen"]
            eventually(lambda: {state for state, _ in found().values()} == {"sent"}, 60)
        rows.connection.close()
        assert {name: ids(stack, topic) for name, topic in topics.items()} == {
            name: [name] for name in SENDERS
        }
