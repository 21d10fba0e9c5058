"""A client from settings, and what it refuses of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consumer.config.settings import PREFIX, Settings
from consumer.config.variables import OTHER_VARIABLES
from feedback import (
    AsyncClient,
    Client,
)
from feedback.client.settings import OWN, settings_from
from feedback.errors import ConfigurationError
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.store import Hints

ENVIRONMENT = {
    "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "localhost:1",
    "ONCEPOOL_KAFKA_TOPICS": " orders , payments",
    "ONCEPOOL_REDIS_URL": "redis://localhost:1/0",
    "ONCEPOOL_REDIS_PREFIX": "shop",
}


def test_a_client_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client.from_env(ENVIRONMENT) as client:
        assert client._topic == "orders"
        assert client._store.prefix == "shop"  # type: ignore[attr-defined]
        assert (client._channel or "").startswith("shop:hints:")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ONCEPOOL_KAFKA_TOPIC", "others")
    monkeypatch.delenv("ONCEPOOL_REDIS_PREFIX")
    with Client.from_env(hints=False) as client:
        assert client._topic == "others"
        assert client._store.prefix == "oncepool"  # type: ignore[attr-defined]
        assert client._channel is None


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "options, said",
    [
        ({"topic": "a b"}, "topic: 'a b' is no topic's name"),
        ({"topic": ".."}, "topic: '..' is no topic's name"),
        ({"topic": ""}, "topic is empty"),
        ({"topic": "^a"}, "topic: '\\^a' is no topic's name"),
        ({"results_topic": "x" * 250}, "results_topic: 'x+' is no topic's name"),
        ({"answer_timeouts": {"a": -1}}, "answer_timeouts: of 'a' it is -1; give a positive"),
        ({"answer_timeouts": {"a": 1, "b": 0}}, "answer_timeouts: of 'b' it is 0"),
        ({"answer_timeouts": {"a": float("nan")}}, "answer_timeouts: of 'a' it is nan"),
        ({"answer_timeouts": {"a": "60"}}, "answer_timeouts: of 'a' it is '60'"),
    ],
)
def test_arguments_that_no_client_can_have_are_named(
    kind: type[Client | AsyncClient], options: dict[str, Any], said: str
) -> None:
    given = {"kafka": "localhost:1", "redis": MemoryStatusStore(), "topic": "requests"}
    with pytest.raises(ConfigurationError, match=said):
        kind(**given | options)


@pytest.mark.parametrize(
    "name, meant",
    [
        ("ONCEPOOL_REDIS_PREFX", "ONCEPOOL_REDIS_PREFIX"),
        ("ONCEPOOL_KAFKA_RESULT_TOPIC", "ONCEPOOL_KAFKA_RESULTS_TOPIC"),
        ("ONCEPOOL_KAFKA_PROPERTYS", "ONCEPOOL_KAFKA_PROPERTIES"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_one_that_is_meant(name: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: .* did you mean {meant}"):
        Client.from_env({n: v for n, v in ENVIRONMENT.items() if n != meant} | {name: "x"})
    assert settings_from(ENVIRONMENT | {name: ""}, {})["prefix"] == "shop"


@pytest.mark.parametrize(
    "name, given",
    [
        ("ONCEPOOL_KAFKA_TOPIC_2", {}),
        ("ONCEPOOL_REDIS_URLS", {}),
        ("ONCEPOOL_KAFKA_TOPIC_DLQ", {"topic": "orders"}),
        ("ONCEPOOL_KAFKA_BOOTSTRAP_SERVICE_HOST", {"kafka": "a:1"}),
        ("ONCEPOOL_KAFKA_BOOTSTRAP_SERVICE_PORT", {}),
    ],
)
def test_a_name_beside_the_one_that_it_is_near_is_another(name: str, given: dict[str, Any]) -> None:
    environment = {n: v for n, v in ENVIRONMENT.items() if "TOPIC" not in n or "topic" not in given}
    assert settings_from(environment | {name: "x"}, given)["prefix"] == "shop"


def test_an_environment_may_be_shared_with_a_consumer() -> None:
    names = {PREFIX + field.upper() for field in Settings.model_fields} | OTHER_VARIABLES.keys()
    others = dict.fromkeys(names - set(OWN), "x") | {"ONCEPOOL_TEST_REDIS_URLS": "x"}
    assert settings_from(others | ENVIRONMENT, {})["prefix"] == "shop"


def test_librdkafka_properties_of_the_environment() -> None:
    given = ENVIRONMENT | {"ONCEPOOL_KAFKA_PROPERTIES": '{"sasl.username": "shop", "no.such": 1}'}
    with pytest.raises(ConfigurationError, match=r"no\.such"):  # so it is told to librdkafka
        Client.from_env(given)
    environ = given | {"ONCEPOOL_KAFKA_PROPERTIES": '{"sasl.username": "shop"}'}
    assert settings_from(environ, {})["kafka"] == {
        "sasl.username": "shop",
        "bootstrap.servers": "localhost:1",
    }
    assert "kafka" not in settings_from(environ, {"kafka": "other:1"})
    for wrong in ('sasl.password="secret"', '["secret"]'):
        with pytest.raises(ConfigurationError, match="no JSON object") as caught:
            Client.from_env(given | {"ONCEPOOL_KAFKA_PROPERTIES": wrong})
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_brokers_may_be_named_by_the_properties_and_what_is_for_consumers_is_left_out() -> None:
    said = {"metadata.broker.list": "localhost:2", "group.id": "g", "session.timeout.ms": 6000}
    environ = {**ENVIRONMENT, "ONCEPOOL_KAFKA_PROPERTIES": json.dumps(said)}
    assert settings_from(environ, {})["kafka"] == {"bootstrap.servers": "localhost:1"}
    del environ["ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS"]
    assert settings_from(environ, {})["kafka"] == {"bootstrap.servers": "localhost:2"}


def test_what_is_missing_in_the_environment_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Client.from_env({"ONCEPOOL_KAFKA_TOPICS": ","})
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_TOPIC ", "KAFKA_TOPICS", "REDIS_URL"):
        assert f"ONCEPOOL_{name}" in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        Client.from_env({}, kafka="a", topic="b")
    assert str(caught.value) == "not set in the environment: ONCEPOOL_REDIS_URL"


@pytest.mark.parametrize(
    "properties, message",
    [
        ({"bootstrap.servers": "a", "transactional.id": "x"}, "transactional.id"),
        ({"delivery.report.only.error": True}, "accepted"),
        ({"bootstrap.servers": "a", "no.such.property": 1}, "no.such.property"),
    ],
)
def test_kafka_properties_that_do_not_work(
    store: MemoryStatusStore, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Client(properties, store, "requests")


@pytest.mark.parametrize(
    "argument, message",
    [
        ({"kafka": ""}, "no broker"),
        ({"kafka": {"linger.ms": 5}}, "no broker"),
        ({"redis": "http://cache"}, "redis: .*redis://"),
        ({"topic": ""}, "topic is empty"),
        ({"prefix": ""}, "prefix is empty"),
        ({"delivery_timeout": 0}, "delivery_timeout"),
    ],
)
def test_arguments_that_do_not_work_are_named_at_once(
    store: MemoryStatusStore, argument: dict[str, Any], message: str
) -> None:
    arguments = {"kafka": "localhost:1", "redis": store, "topic": "requests", **argument}
    with pytest.raises(ConfigurationError, match=message):
        Client(**arguments).close(0.1)


def test_kafka_properties_of_ones_own(store: MemoryStatusStore) -> None:
    with Client({"bootstrap.servers": "localhost:1", "linger.ms": 50}, store, "requests"):
        pass


def test_hints_may_be_any_object_with_its_methods(store: MemoryStatusStore) -> None:
    hints: Hints = store.subscribe("channel")
    hints.close()
