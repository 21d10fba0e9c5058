"""Where requests go, and how a relay is said to be."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.config.settings import Settings
from consumer.errors import ConfigError
from consumer.relay.health import STALE_AFTER, RelayHealth
from consumer.relay.routes import routes_of
from feedback.outbox.relay import Route
from feedback.outbox.relay.loop import LoopState

BROKERS = {"kafka_bootstrap_servers": "k:9092"}


def routes(**given: Any) -> dict[str, Route]:
    return routes_of(Settings(**given))


def test_what_a_route_leaves_out_is_as_for_clients() -> None:
    found = routes(
        **BROKERS,
        kafka_topics=["orders", "more"],
        kafka_properties={"linger.ms": 1, "client.id": "c"},
        outbox_routes={
            "bills": {"topic": "bills", "properties": {"linger.ms": 9}},
            "far": {
                "bootstrap_servers": "f:9092",
                "redis_url": "redis://f/0",
                "redis_prefix": "far",
                "results_topic": "ends",
            },
        },
        redis_url="redis://r/0",
    )
    plain = {"linger.ms": 1, "client.id": "c", "bootstrap.servers": "k:9092"}
    assert found == {
        "default": Route("orders", plain, "redis://r/0"),
        "bills": Route("bills", plain | {"linger.ms": 9}, "redis://r/0"),
        "far": Route(
            "orders", plain | {"bootstrap.servers": "f:9092"}, "redis://f/0", "far", "ends"
        ),
    }
    assert routes(outbox_routes={"a": {"topic": "t", "bootstrap_servers": "f:1"}}).keys() == {"a"}
    assert routes(**BROKERS, kafka_topic="x", outbox_routes={"default": {"topic": "t"}}) == {
        "default": Route("t", {"bootstrap.servers": "k:9092"})
    }


@pytest.mark.parametrize(
    "given,message",
    [
        (BROKERS, "kafka_topic"),
        ({"kafka_topic": "t"}, "kafka_bootstrap_servers"),
        ({"outbox_routes": {"a": {"topic": "t"}}}, "kafka_bootstrap_servers"),
        ({"outbox_routes": {"a": {"bootstrap_servers": "k"}}}, "a has no topic"),
    ],
)
def test_a_route_without_topic_or_brokers_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        routes(**given)


def test_a_relay_is_ready_while_its_services_answer_and_lives_while_it_turns() -> None:
    state = LoopState("default", 100.0, None, None, 7)
    now = 101.0
    health = RelayHealth(lambda: [state], lambda: now)
    assert (health.live().ok, health.ready().ok) == (True, True)
    state = state._replace(other="no broker answers")
    assert (health.live().ok, health.ready().ok) == (True, False)
    assert "[-] default: brokers: no broker answers" in health.ready().as_text()
    state = state._replace(other=None, database="gone")
    assert not health.ready().ok
    state = state._replace(database=None)
    kept = state._replace(kept="3 shards are kept locked")
    locked = RelayHealth(lambda: [kept], lambda: now).ready()
    assert not locked.ok
    assert "[-] default: shards: 3 shards are kept locked" in locked.as_text()
    answers = LoopState("default answers", 100.0, None, "no Redis", 0, sends=False)
    health = RelayHealth(lambda: [state, answers], lambda: now)
    assert health.ready().ok
    assert "[!] default answers: read: no Redis" in health.ready().as_text()
    writes = answers._replace(database="permission denied for table inbox")
    unwritten = RelayHealth(lambda: [state, writes], lambda: now)
    assert (unwritten.live().ok, unwritten.ready().ok) == (True, False)
    assert "[-] default answers: outbox: permission denied" in unwritten.ready().as_text()
    health.stopping = True
    assert (health.live().ok, health.ready().ok) == (True, False)
    now += STALE_AFTER
    assert not health.live().ok
