"""Services that the environment names: used as they are, never started or stopped."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from stack import places
from stack.errors import StackError
from stack.plan import Role

VARIABLES: dict[Role, str] = {
    "kafka": "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS",
    "database": "ONCEPOOL_DATABASE_URL",
    "redis": "ONCEPOOL_REDIS_URL",
}
DEFAULT_PORTS: dict[Role, int] = {"kafka": 9092, "database": 5432, "redis": 6379}


def given() -> dict[Role, str]:
    """The services that the environment names. Raises StackError where one does not answer."""
    found: dict[Role, str] = {}
    for role, variable in VARIABLES.items():
        if address := os.environ.get(variable):
            if not any(places.answers(host, port, 5.0) for host, port in hosts(role, address)):
                raise StackError(
                    f"nothing answers at the address in {variable}; correct it, or unset it to "
                    "have the service started here"
                )
            found[role] = address
    return found


def hosts(role: Role, address: str) -> list[tuple[str, int]]:
    """Host and port of each server of an address. Raises StackError where there are none."""
    default = {"kafka": 9092, "database": 5432, "redis": 6379}[role]
    parts = (
        [f"//{server.strip()}" for server in address.split(",")] if role == "kafka" else [address]
    )
    try:
        urls = [urlsplit(part) for part in parts]
        return [(url.hostname or places.LOCALHOST, url.port or default) for url in urls]
    except ValueError as error:
        raise StackError(f"{VARIABLES[role]} is not an address: {error}") from error
