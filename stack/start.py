"""Bringing a stack up: what is asked for against what is there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stack import keeper, places
from stack.errors import ServiceFailed, StackError
from stack.external import given
from stack.local import Stack
from stack.plan import Kind, Plan, Role, load, locked, new_cluster, new_nodes
from stack.roster import services_of
from stack.service import StackService, Tell

BROKERS = (1, 3)
PORT_TRIES = 3
"""A port that was free when it was chosen may be taken when a service has got so far."""


class Progress(NamedTuple):
    """What a service is doing now."""

    service: str
    doing: str


Watch = Callable[[Progress], None]


def up(
    data: Path | str | None = None,
    brokers: int | None = None,
    *,
    broker_properties: Mapping[str, str] | None = None,
    owner: int | None = None,
    disposable: bool = False,
    watch: Watch | None = None,
) -> Stack:
    """Brings the stack of a data folder up, and returns when all of it serves.

    What runs already is found and kept; what was stopped or killed is started again, with its data.
    `brokers` is 1 (default) or 3. `broker_properties` are added to each broker's. With `owner`, a
    process id, the stack goes down when that process has ended, however it ended; `disposable`
    removes the data at `down`. `watch` is told what is being done.

    Raises StackError; ServiceFailed carries the end of the log of what did not come up. What this
    call started is stopped again then.
    """
    folder = Path(data or places.data_folder()).expanduser().resolve()
    external = given(folder, plan=load(folder))
    with locked(folder):
        earlier = load(folder)
        plan = _plan(folder, earlier, brokers, broker_properties)
        _stop_replaced(folder, plan, external)
        plan = replace(plan, external=external, disposable=plan.disposable or disposable)
        plan = _on_free_ports(folder, plan)
        try:
            plan = _bring_up_somewhere(folder, plan, watch or (lambda _: None))
        except BaseException:
            # Properties that the brokers refuse must not stand in the way of the next `up`.
            replace(plan, properties=earlier.properties if earlier else {}).save(folder)
            raise
        stack = Stack(folder, plan)
        if owner is not None:
            keeper.engage(folder, owner)
    return stack


def _plan(
    data: Path, plan: Plan | None, brokers: int | None, properties: Mapping[str, str] | None
) -> Plan:
    """The folder's plan, or a new one. Raises StackError where another one is asked for."""
    kind = _kind()
    if brokers not in (None, *BROKERS):
        raise StackError(f"a stack has 1 or 3 brokers, not {brokers}")
    if plan is None:
        taken: set[int] = set()
        return Plan(
            kind=kind,
            cluster=new_cluster(),
            nodes=new_nodes(brokers or 1, taken),
            properties=dict(properties or {}),
            database_port=places.free_port(taken),
            password=secrets.token_urlsafe(16),
            redis_port=places.free_port(taken),
        )
    if kind != plan.kind:
        raise StackError(
            f"{data} has a stack of kind {plan.kind}, and ONCEPOOL_STACK asks for {kind}: take it "
            "down with `oncepool stack down --delete`, or name another data folder"
        )
    if brokers not in (None, len(plan.nodes)):
        raise StackError(
            f"{data} has a stack with {len(plan.nodes)} broker(s), not {brokers}: take it down "
            "with `oncepool stack down --delete`, or name another data folder"
        )
    if properties is None or dict(properties) == plan.properties:
        return plan
    if Stack(data, plan).running:
        raise StackError(
            f"the stack in {data} runs with other broker properties: take it down first, or name "
            "another data folder"
        )
    return replace(plan, properties=dict(properties))


def _kind() -> Kind:
    match os.environ.get("ONCEPOOL_STACK", "embedded"):
        case "embedded" | "":
            return "embedded"
        case "docker":
            return "docker"
        case other:
            raise StackError(f"ONCEPOOL_STACK is embedded or docker, not {other!r}")


def _stop_replaced(data: Path, plan: Plan, external: Mapping[Role, str]) -> None:
    """Stops services of an earlier `up` for which the environment now names others."""
    for role, services in services_of(data, plan).items():
        if role in external:
            for service in services:
                service.stop()


def _on_free_ports(data: Path, plan: Plan) -> Plan:
    """The plan, with new ports for services that do not run and whose ports others have taken."""
    moved: set[Role] = set()
    for role, services in services_of(data, plan).items():
        if all(service.state() == "stopped" for service in services):
            for service in services:
                service.clear()
            ports = {service.port for service in services}
            if role == "kafka":
                ports |= {port for pair in plan.nodes.values() for port in pair}
            if not places.become_free(ports):
                moved.add(role)
    return plan.with_new_ports(set(), moved) if moved else plan


def _bring_up_somewhere(data: Path, plan: Plan, watch: Watch) -> Plan:
    """Brings all of it up; the plan, on other ports where others took some at the last moment."""
    for left in reversed(range(PORT_TRIES)):
        plan.save(data)
        try:
            _bring_up(Stack(data, plan).services, watch)
        except ServiceFailed:
            moved = _on_free_ports(data, plan)
            if moved == plan or not left:
                raise
            plan = moved
        else:
            break
    return plan


def _bring_up(services: list[StackService], watch: Watch) -> None:
    """Launches all, then waits for all: brokers of a cluster wait for each other."""
    launched: list[StackService] = []

    def tell(service: StackService) -> Tell:
        return lambda doing: watch(Progress(service.name, doing))

    try:
        for service in services:
            launched.append(service)
            if not service.launch(tell(service)):
                launched.remove(service)
        for service in services:
            service.wait(tell(service))
    except BaseException:
        # Also when interrupted: what did not come up whole leaves nothing behind.
        for service in launched:
            service.stop(kill=True)
        raise
