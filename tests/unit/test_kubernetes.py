"""deploy/kubernetes: valid, and its settings, ports, probes and times are those of the product."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from consumer.cli import app
from consumer.commands.run import NEEDED
from consumer.config.loader import load_settings
from consumer.config.settings import Settings
from consumer.gateway import health_api
from consumer.gateway.access import Access
from consumer.gateway.server import configured
from consumer.relay.routes import routes_of
from consumer.service.service import STUCK_AFTER
from feedback.outbox.relay.relay import STOP_TIMEOUT
from processing.maintenance.health import HealthReport
from processing.maintenance.health_server import HealthServer
from processing.settings import MaintenanceSettings
from tests.support.gateway import GatewayBench

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
FILES = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name != "kustomization.yaml"]
OBJECTS: list[dict[str, Any]] = [
    one for path in FILES for one in yaml.safe_load_all(path.read_text())
]

ROLES = ["consumer", "gateway", "relay"]
PROBES = {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}


def find(kind: str, name: str) -> dict[str, Any]:
    (found,) = (o for o in OBJECTS if (o["kind"], o["metadata"]["name"]) == (kind, name))
    return found


def pod(role: str) -> dict[str, Any]:
    kind = "Job" if role == "migrate" else "Deployment"
    spec: dict[str, Any] = find(kind, f"oncepool-{role}")["spec"]["template"]["spec"]
    return spec


def containers(role: str) -> list[dict[str, Any]]:
    return pod(role).get("initContainers", []) + pod(role)["containers"]


def settings(container: dict[str, Any]) -> Settings:
    """As the program in it reads them, from its environment."""
    environ: dict[str, str] = {}
    for source in container["envFrom"]:
        ((what, reference),) = source.items()
        kind = {"configMapRef": "ConfigMap", "secretRef": "Secret"}[what]
        found = find(kind, reference["name"])
        environ |= found.get("data", {}) | found.get("stringData", {})
    environ |= {one["name"]: one["value"] for one in container.get("env", [])}
    assert all(isinstance(value, str) for value in environ.values()), "only text is a variable"
    return load_settings(environ=environ, folder=FOLDER)


def server(role: str) -> tuple[dict[str, Any], Settings]:
    (container,) = containers(role)
    return container, settings(container)


def listed() -> set[str]:
    text = (FOLDER / "kustomization.yaml").read_text()
    return set(yaml.safe_load(text)["resources"])


def test_what_is_applied_is_what_is_there() -> None:
    assert listed() == {path.name for path in FILES}
    names = [(one["kind"], one["metadata"]["name"]) for one in OBJECTS]
    assert len(set(names)) == len(names)


def test_it_is_valid_by_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="pip install kubernetes-validate, which has the schemas"
    )
    for one in OBJECTS:
        validate.validate(one, "1.34", strict=True)


def test_it_can_be_applied_as_one() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("install kubectl")
    built = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True
    )
    assert len(list(yaml.safe_load_all(built.stdout))) == len(OBJECTS)


def test_each_program_has_the_settings_that_it_asks_for() -> None:
    _, consumer = server("consumer")
    consumer.require(*NEEDED)
    _, relay = server("relay")
    relay.require("outbox_database_url")
    assert routes_of(relay).keys() == {"default"}
    _, gateway = server("gateway")
    gateway.require("kafka_bootstrap_servers", "redis_url")
    assert not Access(gateway.gateway_keys, gateway.gateway_rate).open
    for container in containers("migrate"):
        settings(container).require("kafka_bootstrap_servers", "kafka_topics", "database_url")


def test_each_command_is_one() -> None:
    for role in [*ROLES, "migrate"]:
        for container in containers(role):
            program, *words = container["args"]
            assert program == "oncepool"
            found = get_command(app)
            for word in words:
                assert isinstance(found, TyperGroup), words
                command = found.get_command(Context(found), word)
                assert command is not None, words
                found = command
            assert not isinstance(found, TyperGroup), words


@pytest.mark.parametrize("role", ROLES)
def test_probes_ask_where_the_program_listens(role: str) -> None:
    container, read = server(role)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    if role == "gateway":
        host, port = read.gateway_host, read.gateway_port
    else:
        host, port = read.health_host, read.health_port or 0
    assert host == "0.0.0.0"
    for probe, path in PROBES.items():
        asked = container[f"{probe}Probe"]["httpGet"]
        assert (asked["path"], ports[asked["port"]]) == (path, port), probe


class Well:
    def live(self) -> HealthReport:
        return HealthReport(())

    ready = live


@pytest.mark.parametrize("role", ROLES)
def test_what_probes_ask_for_is_served(role: str) -> None:
    container, _ = server(role)
    probes = [container[f"{probe}Probe"]["httpGet"] for probe in PROBES]
    if role == "gateway":
        served = {getattr(route, "path", None) for route in health_api.router.routes}
        assert {probe["path"] for probe in probes} <= served
        return
    health = HealthServer("127.0.0.1", 0, Well())
    try:
        for probe in probes:
            url = f"http://127.0.0.1:{health.port}{probe['path']}"
            assert httpx.get(url, trust_env=False).status_code == 200
    finally:
        health.close()


def test_a_service_is_restarted_after_it_counts_as_stuck_and_not_before() -> None:
    """/livez fails from `stale_after` on: that one failure, or a slow answer, is no verdict."""
    stale = MaintenanceSettings.__dataclass_fields__["stale_after"].default
    for role in ROLES:
        container, _ = server(role)
        liveness, startup = container["livenessProbe"], container["startupProbe"]
        assert liveness["failureThreshold"] > 1
        assert liveness["timeoutSeconds"] <= liveness["periodSeconds"]
        assert liveness["periodSeconds"] * liveness["failureThreshold"] > stale
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 60


def test_each_has_the_time_to_end_by_itself() -> None:
    consumer, gateway, relay = (pod(role)["terminationGracePeriodSeconds"] for role in ROLES)
    _, read = server("consumer")
    assert consumer > read.grace + STUCK_AFTER
    assert "lifecycle" not in containers("consumer")[0]
    assert relay > STOP_TIMEOUT
    container, read = server("gateway")
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    answers = configured(read, GatewayBench().app).timeout_graceful_shutdown
    assert answers is not None
    assert 0.8 * read.grace < answers < read.grace
    assert gateway > before + read.grace


def test_times_are_those_of_the_pages_and_of_the_defaults() -> None:
    consumer = pod("consumer")["terminationGracePeriodSeconds"]
    page = (ROOT / "docs" / "operations.md").read_text()
    assert re.findall(r"terminationGracePeriodSeconds: (\d+)", page) == [str(consumer)]
    for role in ("consumer", "gateway"):
        assert server(role)[1].grace == Settings.model_fields["grace"].default
    assert server("gateway")[1].gateway_send_timeout == 10.0


@pytest.mark.parametrize("role", [*ROLES, "migrate"])
def test_no_service_of_the_cluster_is_taken_for_a_setting(role: str) -> None:
    """A service `oncepool-gateway` would be told as ONCEPOOL_GATEWAY_PORT=tcp://..., to all."""
    assert pod(role)["enableServiceLinks"] is False


@pytest.mark.parametrize("role", [*ROLES, "migrate"])
def test_nothing_runs_with_more_rights_than_it_needs(role: str) -> None:
    assert pod(role)["automountServiceAccountToken"] is False
    for container in containers(role):
        locked = container["securityContext"]
        assert locked["readOnlyRootFilesystem"] is True
        assert locked["allowPrivilegeEscalation"] is False
        assert "memory" in container["resources"]["limits"]
    user = re.findall(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user == [str(pod(role)["securityContext"]["runAsUser"])]


def test_workers_are_no_more_than_the_cpus_that_were_asked_for_can_feed() -> None:
    """The default would be the node's CPUs."""
    container, read = server("consumer")
    assert "workers" in read.model_fields_set
    assert read.workers <= 2 * int(container["resources"]["requests"]["cpu"])


def test_secrets_are_with_those_who_need_them() -> None:
    for one in OBJECTS:
        if one["kind"] == "ConfigMap":
            assert not [name for name in one["data"] if re.search("DATABASE_URL|KEYS|SECRET", name)]
    assert not server("relay")[1].database_url
    assert not server("consumer")[1].gateway_keys
    keys = find("Secret", "oncepool-gateway")["stringData"]["ONCEPOOL_GATEWAY_KEYS"]
    assert {key["hash"] for key in json.loads(keys).values()} == {"sha256:" + "0" * 64}


@pytest.mark.parametrize("role", ROLES)
def test_who_is_meant_is_there(role: str) -> None:
    """By selectors of deployments, services and disruption budgets, and by targets."""
    spec = find("Deployment", f"oncepool-{role}")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    for one in OBJECTS:
        if one["metadata"]["name"] == f"oncepool-{role}" and one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"] == labels
    if role == "gateway":
        service = find("Service", "oncepool-gateway")["spec"]
        assert service["selector"] == labels
        assert {port["targetPort"] for port in service["ports"]} <= {
            port["name"] for port in containers("gateway")[0]["ports"]
        }


def test_the_image_has_what_the_commands_need() -> None:
    assert ".[example,gateway,metrics]" in (ROOT / "Dockerfile").read_text()
