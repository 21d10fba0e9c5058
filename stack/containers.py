"""The same services in containers, by testcontainers, where ONCEPOOL_STACK=docker asks for them.

They use the network of the host, so that they listen on the same local ports, with the same
configuration, as the embedded services. That needs a Docker engine on this machine, under Linux.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stack.errors import MissingPackage, ServiceFailed, StackError
from stack.kafka import server_properties
from stack.places import LOCALHOST
from stack.plan import Plan, Role
from stack.postgres import DATABASE, SETTINGS, USER
from stack.readiness import broker_is_in, database_is_there, redis_answers
from stack.service import LOG_LINES, StackService, State, Tell

if TYPE_CHECKING:
    from docker.models.containers import Container

IMAGES = {"kafka": "apache/kafka:4.3.1", "postgres": "postgres:18", "valkey": "valkey/valkey:9"}
STOP_TIMEOUT = 15


class ContainerService(StackService):
    """A service in a container, which is known by its name."""

    start_timeout = 180.0
    look_every = 0.2
    kind = "container"

    def __init__(
        self,
        name: str,
        port: int,
        data: Path,
        *,
        address: str,
        command: list[str],
        environment: Mapping[str, str],
        ready: Callable[[], bool],
    ) -> None:
        super().__init__(name, port)
        mark = hashlib.sha256(str(data).encode()).hexdigest()[:12]
        self._container_name = f"oncepool-{mark}-{name}"
        self._image = IMAGES[name.split("-", maxsplit=1)[0]]
        self._address = address
        self._command = command
        self._environment = dict(environment)
        self._ready = ready

    @property
    def address(self) -> str:
        return self._address

    def state(self) -> State:
        container = self._find()
        states: dict[str, State] = {"running": "running", "paused": "paused"}
        return "stopped" if container is None else states.get(container.status, "stopped")

    def launch(self, tell: Tell) -> bool:
        container = self._find()
        if container is not None and container.status == "running":
            tell("already running")
            return False
        tell("starting its container")
        if container is None:
            self._create()
        elif container.status == "paused":
            container.unpause()
        else:
            container.start()
        return True

    def ready(self) -> bool:
        return self._ready()

    def stop(self, *, kill: bool = False) -> None:
        container = self._find()
        if container is None or self.state() == "stopped":
            return
        if kill:
            container.kill()
            return
        self.resume()
        container.stop(timeout=STOP_TIMEOUT)

    def pause(self) -> None:
        if self.state() == "running" and (container := self._find()) is not None:
            container.pause()

    def resume(self) -> None:
        if self.state() == "paused" and (container := self._find()) is not None:
            container.unpause()

    def clear(self) -> None:
        """Nothing to do: a container that stopped has no processes left."""

    def remove(self) -> None:
        container = self._find()
        if container is not None:
            container.remove(force=True, v=True)

    def _create(self) -> None:
        try:
            from testcontainers.core.config import testcontainers_config
            from testcontainers.core.container import DockerContainer
        except ImportError as error:  # pragma: no cover - an installation without the extra
            raise MissingPackage("testcontainers", "docker") from error
        # Its reaper would remove the containers with this process; `down` and the keeper do that.
        testcontainers_config.ryuk_disabled = True
        made = DockerContainer(self._image, env=self._environment, name=self._container_name)
        made.with_command(self._command).with_kwargs(network_mode="host")
        made.start()

    def _find(self) -> Container | None:
        try:
            import docker
        except ImportError as error:  # pragma: no cover - an installation without the extra
            raise MissingPackage("testcontainers", "docker") from error
        try:
            engine: Any = docker.from_env()
            with suppress(docker.errors.NotFound):
                container: Container = engine.containers.get(self._container_name)
                return container
        except docker.errors.DockerException as error:
            raise StackError(
                f"ONCEPOOL_STACK=docker, and no Docker engine answers: {error}. Start one, or "
                "unset ONCEPOOL_STACK to run the services without it"
            ) from error
        return None

    def failed(self, why: str) -> ServiceFailed:
        container = self._find()
        logs = b"" if container is None else container.logs(tail=LOG_LINES)
        lines = logs.decode(errors="replace").splitlines()
        return ServiceFailed(self.name, why, f"docker logs {self._container_name}", lines)


def services_in_containers(data: Path, plan: Plan) -> dict[Role, list[StackService]]:
    """The services of a plan that the environment does not give."""
    makers: dict[Role, Callable[[Path, Plan], list[StackService]]] = {
        "database": _postgres,
        "redis": _valkey,
        "kafka": _brokers,
    }
    return {role: make(data, plan) for role, make in makers.items() if role not in plan.external}


def _postgres(data: Path, plan: Plan) -> list[StackService]:
    port = plan.database_port
    server = f"postgresql://{USER}:{plan.password}@{LOCALHOST}:{port}"
    # Sockets stay where the image's own scripts expect them.
    settings = {k: v for k, v in SETTINGS.items() if k != "unix_socket_directories"}
    return [
        ContainerService(
            "postgres",
            port,
            data,
            address=f"{server}/{DATABASE}",
            command=["postgres", f"--port={port}", *(f"--{k}={v}" for k, v in settings.items())],
            environment={"POSTGRES_USER": USER, "POSTGRES_PASSWORD": plan.password},
            ready=lambda: database_is_there(f"{server}/postgres", DATABASE),
        )
    ]


def _valkey(data: Path, plan: Plan) -> list[StackService]:
    port = plan.redis_port
    return [
        ContainerService(
            "valkey",
            port,
            data,
            address=f"redis://{LOCALHOST}:{port}/0",
            command=["valkey-server", "--bind", LOCALHOST, "--port", str(port), "--save", ""],
            environment={},
            ready=lambda: redis_answers(LOCALHOST, port),
        )
    ]


def _brokers(data: Path, plan: Plan) -> list[StackService]:
    return [_broker(data, plan, node) for node in plan.nodes]


def _broker(data: Path, plan: Plan, node: int) -> StackService:
    port = plan.nodes[node][0]
    properties = server_properties(node, plan.nodes, plan.properties)
    return ContainerService(
        f"kafka-{node}",
        port,
        data,
        address=f"{LOCALHOST}:{port}",
        command=["/etc/kafka/docker/run"],
        environment={"CLUSTER_ID": plan.cluster, **as_variables(properties)},
        ready=lambda: broker_is_in(LOCALHOST, port, node),
    )


def as_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """Broker properties as the environment variables that Kafka's image makes them from."""

    def variable(name: str) -> str:
        escaped = name.replace("_", "__").replace("-", "___").replace(".", "_")
        return f"KAFKA_{escaped.upper()}"

    return {variable(name): value for name, value in properties.items()}
