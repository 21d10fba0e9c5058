"""compose.yaml: valid by the Compose specification, and right where no schema looks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from consumer.config.settings import Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compose.yaml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
BROKERS = [name for name in SERVICES if name.startswith("kafka-")]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("oncepool")]


def validate(text: str) -> None:
    compose_spec.PyOptions(apply_merge=True).from_yaml(text).validate()


def test_it_follows_the_specification() -> None:
    validate(TEXT)


@pytest.mark.parametrize(
    "right,wrong",
    [
        ("condition: service_healthy", "condition: healthy"),
        ("restart: unless-stopped", "restart: often"),
        ("stop_grace_period", "stop_grace"),
        ("127.0.0.1:25432:5432", "127.0.0.1:port:5432"),
        ("replicas: 2", "replicas: two"),
        ("interval: 10s", "interval: [10]"),
    ],
)
def test_the_check_finds_mistakes(right: str, wrong: str) -> None:
    assert right in TEXT
    with pytest.raises(ValueError, match=r"."):
        validate(TEXT.replace(right, wrong))


def test_every_dependency_exists_and_can_be_waited_for() -> None:
    for service in SERVICES.values():
        for name, how in service.get("depends_on", {}).items():
            dependency = SERVICES[name]
            match how["condition"]:
                case "service_healthy":
                    assert "healthcheck" in dependency, name
                case "service_completed_successfully":
                    assert dependency["restart"] == "no", name
                case other:
                    pytest.fail(f"{name}: {other}")


def test_servers_have_a_health_check_and_come_back() -> None:
    for name in SERVICES.keys() - {"topics", "migrate"}:
        assert "healthcheck" in SERVICES[name], name
        assert SERVICES[name]["restart"] == "unless-stopped", name


def test_published_ports_are_local_and_differ() -> None:
    published = [port for s in SERVICES.values() for port in s.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    hosts = [port.split(":")[1] for port in published]
    assert len(set(hosts)) == len(hosts)
    # A service that runs more than once cannot have a port of the machine.
    assert "ports" not in SERVICES["consumer"]


def test_each_volume_has_one_user() -> None:
    used = [v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", [])]
    assert sorted(used) == sorted(yaml.safe_load(TEXT)["volumes"])


def test_images_are_pinned() -> None:
    for service in SERVICES.values():
        assert re.search(r":(\d[\d.]*|local)$", service["image"]), service["image"]


def test_three_brokers_make_one_cluster() -> None:
    assert BROKERS == ["kafka-1", "kafka-2", "kafka-3"]
    environments = [SERVICES[name]["environment"] for name in BROKERS]
    for name, environment in zip(BROKERS, environments, strict=True):
        node = environment["KAFKA_NODE_ID"]
        voters = dict(
            v.split("@") for v in environment["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
        )
        assert voters[node] == f"{name}:9093"
        assert len(voters) == 3
        listeners = listeners_of(environment["KAFKA_LISTENERS"])
        advertised = listeners_of(environment["KAFKA_ADVERTISED_LISTENERS"])
        assert advertised["PLAINTEXT"] == (name, listeners["PLAINTEXT"][1])
        assert advertised["HOST"] == ("127.0.0.1", listeners["HOST"][1])
        host = listeners["HOST"][1]
        assert SERVICES[name]["ports"] == [f"127.0.0.1:{host}:{host}"]
        protocols = environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
        assert {p.split(":")[0] for p in protocols} == listeners.keys()
    shared = [e.keys() - {"KAFKA_NODE_ID"} for e in environments]
    assert shared[0] == shared[1] == shared[2]
    assert len({e["CLUSTER_ID"] for e in environments}) == 1


def listeners_of(value: str) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for listener in value.split(","):
        name, _, address = listener.partition("://")
        host, _, port = address.rpartition(":")
        found[name] = (host, port)
    return found


@pytest.mark.parametrize("name", OURS)
def test_settings_are_known_and_point_at_services(name: str) -> None:
    environment = SERVICES[name]["environment"]
    for variable in environment.keys() - {"SHOP_CARDS_URL"}:
        assert variable.removeprefix("ONCEPOOL_").lower() in Settings.model_fields, variable
    servers = environment["ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS"].split(",")
    assert servers == [f"{broker}:9092" for broker in BROKERS]
    assert "@postgres:5432/" in environment["ONCEPOOL_DATABASE_URL"]
    assert environment["ONCEPOOL_REDIS_URL"] == "redis://valkey:6379/0"


def test_the_consumers_password_is_the_databases() -> None:
    password = SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"]
    for name in OURS:
        url = SERVICES[name]["environment"]["ONCEPOOL_DATABASE_URL"]
        assert url == f"postgresql://oncepool:{password}@postgres:5432/oncepool"


def test_two_consumers_start_when_topics_and_journal_are_there() -> None:
    consumer = SERVICES["consumer"]
    assert OURS == ["topics", "migrate", "cards", "consumer"]
    assert consumer["deploy"]["replicas"] == 2
    assert {"topics", "migrate"} <= consumer["depends_on"].keys()
    grace = int(consumer["environment"]["ONCEPOOL_GRACE"])
    assert compose_spec.parse_duration(consumer["stop_grace_period"]) > grace
    assert consumer["environment"]["SHOP_CARDS_URL"] == "http://cards:8090"
    assert consumer["environment"]["ONCEPOOL_HEALTH_PORT"] in consumer["healthcheck"]["test"][-1]


def test_the_image_gets_what_its_dockerfile_copies() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    copied = {source for line in copies for source in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{s}" for s in copied} == {line.rstrip("/") for line in ignored if line[0] == "!"}
    for source in copied:
        assert (ROOT / source).exists(), source
