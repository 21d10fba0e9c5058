"""Services that the environment names: used as they are, never started or stopped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stack import places
from stack.errors import StackError
from stack.plan import Plan, Role

VARIABLES: dict[Role, str] = {
    "kafka": "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS",
    "database": "ONCEPOOL_DATABASE_URL",
    "redis": "ONCEPOOL_REDIS_URL",
}
_PORTS: dict[Role, int] = {"kafka": 9092, "database": 5432, "redis": 6379}

OWN = "ONCEPOOL_STACK_OWN"
"""What `up` exports beside the addresses: which of them are a stack's own, and of which folder."""


def mark(data: Path, addresses: Iterable[str]) -> str:
    """The value of OWN for these addresses of the stack in `data`."""
    return f"{','.join(map(_digest, addresses))}@{data}"


def given(
    data: Path, environ: Mapping[str, str] | None = None, plan: Plan | None = None
) -> dict[Role, str]:
    """The services that the environment names, but for those of the stack in `data`.

    That are those that it exported, and those that `plan`, its present one, has started.
    Addresses of another folder's stack are left out where nothing answers: that stack is down.
    Raises StackError where an address that somebody else has set does not answer.
    """
    values = os.environ if environ is None else environ
    digests, _, folder = values.get(OWN, "").partition("@")
    exported = set(digests.split(","))
    found: dict[Role, str] = {}
    for role, variable in VARIABLES.items():
        address = values.get(variable)
        if not address:
            continue
        of_a_stack = _digest(address) in exported
        servers = hosts(role, address)
        if (of_a_stack and folder == str(data)) or (plan and plan.is_own(role, servers)):
            continue
        if any(places.answers(host, port, 5.0) for host, port in servers):
            found[role] = address
        elif not of_a_stack:
            raise StackError(
                f"nothing answers at the address in {variable}; correct it, or unset it to "
                "have the service started here"
            )
    return found


def _digest(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def hosts(role: Role, address: str) -> list[tuple[str, int]]:
    """Host and port of each server of an address. Raises StackError where there are none."""
    default = _PORTS[role]
    parts = (
        [f"//{server.strip()}" for server in address.split(",")] if role == "kafka" else [address]
    )
    try:
        urls = [urlsplit(part) for part in parts]
        return [(url.hostname or places.LOCALHOST, url.port or default) for url in urls]
    except ValueError as error:
        raise StackError(f"{VARIABLES[role]} is not an address: {error}") from error
