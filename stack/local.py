"""The stack as callers see it: its addresses, broken on purpose, healed, taken down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from stack import keeper, places
from stack.errors import NotOurs, StackError
from stack.external import hosts
from stack.plan import FILE, LOCK, Plan, Role, load, locked
from stack.roster import services_of
from stack.service import StackService, State


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One service as it is now."""

    name: str
    role: Role
    state: State | Literal["external"]
    """`running`, `paused`, `stopped`; `external` where the environment gave it."""
    address: str
    """Host and port."""


class Stack:
    """Kafka, PostgreSQL and Valkey, and where they can be reached.

    The services live on when this object goes; `down` ends them. As a context manager, they are
    ended at its exit.
    """

    def __init__(self, data: Path, plan: Plan) -> None:
        self.data = data
        self._plan = plan
        self._services = services_of(data, plan)

    @property
    def kafka(self) -> str:
        """Bootstrap servers."""
        return self._plan.external.get("kafka") or ",".join(
            f"{places.LOCALHOST}:{ports[0]}" for ports in self._plan.nodes.values()
        )

    @property
    def database(self) -> str:
        """The PostgreSQL URL, password and all."""
        return self._address("database")

    @property
    def redis(self) -> str:
        """The Redis URL."""
        return self._address("redis")

    @property
    def external(self) -> Mapping[Role, str]:
        """Addresses of the services that the environment gave."""
        return self._plan.external

    @property
    def services(self) -> list[StackService]:
        """The services that are this stack's own."""
        return [service for services in self._services.values() for service in services]

    @property
    def brokers(self) -> int:
        """How many brokers it was asked to run; 0 where Kafka is external."""
        return len(self._services.get("kafka", ()))

    def status(self) -> list[ServiceStatus]:
        """Every service as it is now."""
        found: list[ServiceStatus] = []
        for role, address in self._plan.external.items():
            servers = ",".join(f"{host}:{port}" for host, port in hosts(role, address))
            found.append(ServiceStatus(role, role, "external", servers))
        for role, services in self._services.items():
            for s in services:
                address = f"{places.LOCALHOST}:{s.port}"
                found.append(ServiceStatus(s.name, role, s.state(), address))
        return found

    @property
    def running(self) -> bool:
        """True where any of its services runs, or is paused."""
        return any(s.state() != "stopped" for s in self.services)

    def heal(self) -> None:
        """Starts what is stopped and lets go on what is paused, on the same ports."""
        with locked(self.data):
            for service in (broken := [s for s in self.services if s.state() != "running"]):
                service.launch(_silent)
            for service in broken:
                service.wait(_silent)

    def down(self, *, delete: bool = False) -> None:
        """Ends every service that this data folder's stack has started; `delete`: its data too."""
        if not (self.data / FILE).exists():
            return
        with locked(self.data):
            keeper.dismiss(self.data)
            delete = delete or self._plan.disposable
            # All at once: brokers of a cluster are slow to stop one after the other, and what is
            # removed needs no time to tidy up.
            with ThreadPoolExecutor() as threads:
                list(threads.map(lambda service: service.stop(kill=delete), self.services))
            if delete:
                _remove(self.data, self.services)

    def stop_broker(self, node: int = 1, *, kill: bool = False) -> None:
        """Ends a broker, with SIGKILL where `kill`; `start_broker` brings it back as it was."""
        self._change("kafka", node, lambda service: service.stop(kill=kill))

    def start_broker(self, node: int = 1) -> None:
        """Starts a broker on its port again, and returns when it serves."""
        self._change("kafka", node, lambda service: service.start())

    def pause_broker(self, node: int = 1) -> None:
        """Holds a broker: connections stay open, nothing answers."""
        self._change("kafka", node, lambda service: service.pause())

    def resume_broker(self, node: int = 1) -> None:
        """Lets a paused broker go on."""
        self._change("kafka", node, lambda service: service.resume())

    def stop_database(self, *, kill: bool = False) -> None:
        """Ends PostgreSQL: every transaction is rolled back; `kill`: as after a crash."""
        self._change("database", 1, lambda service: service.stop(kill=kill))

    def start_database(self) -> None:
        """Starts PostgreSQL on its port again, and returns when it serves."""
        self._change("database", 1, lambda service: service.start())

    def pause_database(self) -> None:
        """Holds PostgreSQL and its backends: connections stay open, nothing answers."""
        self._change("database", 1, lambda service: service.pause())

    def resume_database(self) -> None:
        """Lets a paused PostgreSQL go on."""
        self._change("database", 1, lambda service: service.resume())

    def stop_redis(self, *, kill: bool = False) -> None:
        """Ends Valkey, which forgets everything."""
        self._change("redis", 1, lambda service: service.stop(kill=kill))

    def start_redis(self) -> None:
        """Starts Valkey on its port again, empty, and returns when it serves."""
        self._change("redis", 1, lambda service: service.start())

    def pause_redis(self) -> None:
        """Holds Valkey: connections stay open, nothing answers."""
        self._change("redis", 1, lambda service: service.pause())

    def resume_redis(self) -> None:
        """Lets a paused Valkey go on."""
        self._change("redis", 1, lambda service: service.resume())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def _address(self, role: Role) -> str:
        return self._plan.external.get(role) or self._services[role][0].address

    def _change(self, role: Role, node: int, change: Callable[[StackService], None]) -> None:
        if role in self._plan.external:
            raise NotOurs(role, self._plan.external[role])
        services = self._services[role]
        if not 1 <= node <= len(services):
            raise StackError(f"there is no broker {node}: this stack has {len(services)}")
        with locked(self.data):
            change(services[node - 1])


def find(data: Path | str | None = None, *, stopped: bool = False) -> Stack | None:
    """The stack of a data folder where any of its services runs, else None.

    With `stopped`, also one of which nothing runs now. Raises StackError where the folder's plan
    cannot be read.
    """
    folder = Path(data or places.data_folder()).expanduser().resolve()
    plan = load(folder)
    stack = None if plan is None else Stack(folder, plan)
    return stack if stack is not None and (stopped or stack.running) else None


def _remove(data: Path, services: list[StackService]) -> None:
    """Removes what the stack has made in its data folder, and the folder if that empties it."""
    for service in services:
        service.remove()
    # The lock last: until then nobody else works here.
    for name in (FILE, LOCK):
        (data / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        data.rmdir()


def _silent(_: str) -> None:
    """Tells nobody."""
