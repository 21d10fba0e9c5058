"""Which services make up a stack."""

from __future__ import annotations

from pathlib import Path

from stack.plan import Plan, Role
from stack.service import StackService


def services_of(data: Path, plan: Plan) -> dict[Role, list[StackService]]:
    """The services that a plan does not leave to others.

    Their modules are imported here, as they need the packages of an extra, which are missing where
    the environment gives every service.
    """
    if plan.kind == "docker":
        from stack.containers import services_in_containers

        return services_in_containers(data, plan)
    services: dict[Role, list[StackService]] = {}
    if "database" not in plan.external:
        from stack.postgres import Postgres

        services["database"] = [Postgres("postgres", plan.database_port, data, plan.password)]
    if "redis" not in plan.external:
        from stack.valkey import Valkey

        services["redis"] = [Valkey("valkey", plan.redis_port, data)]
    if "kafka" not in plan.external:
        from stack.kafka import Broker

        services["kafka"] = [
            Broker(node, plan.nodes, data, plan.cluster, plan.properties) for node in plan.nodes
        ]
    return services
