"""What a data folder's stack consists of: decided once, kept in the folder, read by every command.

What runs at the moment is not in it: that is asked of the system.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from stack.errors import StackError
from stack.places import LOCAL_NAMES, free_port
from stack.waiting import pauses

Kind = Literal["embedded", "docker"]
Role = Literal["kafka", "database", "redis"]

FORMAT = 1
FILE = "stack.json"
LOCK = "stack.lock"
PATIENCE = 1.0
"""Seconds for which a folder that others make and remove may be missing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A stack as it is to run."""

    kind: Kind
    cluster: str
    """Kafka's cluster id."""
    nodes: dict[int, tuple[int, int]]
    """For each broker by its node id: the port for clients and the one for controllers."""
    properties: dict[str, str]
    """Broker properties besides those of the stack."""
    database_port: int
    password: str
    redis_port: int
    external: dict[Role, str] = field(default_factory=dict)
    """Addresses of services that the environment gave at the last `up`."""
    disposable: bool = False
    """The data goes when the stack goes down."""

    def with_new_ports(self, taken: set[int], roles: set[Role]) -> Plan:
        """The same on other ports, for these roles."""
        plan = self
        if "kafka" in roles:
            plan = replace(plan, nodes=new_nodes(len(self.nodes), taken))
        if "database" in roles:
            plan = replace(plan, database_port=free_port(taken))
        if "redis" in roles:
            plan = replace(plan, redis_port=free_port(taken))
        return plan

    def is_own(self, role: Role, servers: Collection[tuple[str, int]]) -> bool:
        """Whether these servers, host and port, are services that this plan has started."""
        own: dict[Role, set[int]] = {
            "kafka": {port for port, _ in self.nodes.values()},
            "database": {self.database_port},
            "redis": {self.redis_port},
        }
        ports = set() if role in self.external else own[role]
        return all(host in LOCAL_NAMES and port in ports for host, port in servers)

    def save(self, data: Path) -> None:
        """Writes the plan; only this user can read it, as it holds a password."""
        draft = data / f"{FILE}.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1))
        # A reader sees the old plan or the new one, never half of one.
        draft.replace(data / FILE)


def load(data: Path) -> Plan | None:
    """The plan in a data folder, None where there is none."""
    try:
        text = (data / FILE).read_text()
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        if fields.pop("format") != FORMAT:
            raise StackError(
                f"{data / FILE} was written by another version; take that stack down with it, "
                "or name another data folder"
            )
        fields["nodes"] = {int(node): tuple(ports) for node, ports in fields["nodes"].items()}
        return Plan(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StackError(f"{data / FILE} cannot be read ({error}); remove it") from error


def new_nodes(brokers: int, taken: set[int]) -> dict[int, tuple[int, int]]:
    """Ports for a cluster of this many nodes."""
    return {node: (free_port(taken), free_port(taken)) for node in range(1, brokers + 1)}


def new_cluster() -> str:
    """A Kafka cluster id: 22 characters, which do not begin with a dash."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()).startswith("-"):
        pass
    return made


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """Holds the data folder's lock: one command at a time starts or stops its services.

    It is gone with the process that holds it. The folder is made where it is missing.
    """
    lock = _take_lock(data)
    try:
        yield
    finally:
        os.close(lock)


def _take_lock(data: Path) -> int:
    """The descriptor that holds the lock; closing it lets go."""
    while True:
        lock = _open_lock(data)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _same_file(lock, data / LOCK):
            return lock
        os.close(lock)


def _open_lock(data: Path) -> int:
    """Raises StackError where there can be no such folder."""
    for passed in pauses(PATIENCE):
        # The one who held the lock before may have removed it, with the folder, at any moment.
        try:
            data.mkdir(parents=True, exist_ok=True)
            return os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if passed < PATIENCE and isinstance(error, FileNotFoundError | FileExistsError):
                continue
            raise StackError(
                f"{data} can't be the stack's folder ({error.strerror}): name another by --data or"
                " ONCEPOOL_STACK_DATA"
            ) from error
    raise AssertionError


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
