"""API keys of the HTTP gateway, as the configuration has them: their hashes, never themselves."""

from __future__ import annotations

import json
import re
import secrets
from hashlib import sha256
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

GatewayRole = Literal["send", "read", "operate"]

LEAST_LENGTH: Final = 32
"""Characters of a key: what is that long and was made here is not to be guessed, so that a plain
hash of it may stand in a file."""
NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")


class GatewayKey(BaseModel):
    """One API key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hash: str = Field(pattern="^sha256:[0-9a-f]{64}$")
    """Of the key, as `oncepool gateway --new-key` prints it."""
    roles: list[GatewayRole] = Field(min_length=1)
    """What it may do: send requests, read statuses, operate."""
    types: list[str] = Field(default=["*"], min_length=1)
    """Types of requests that it may have to do with; `*` stands for anything."""
    rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Calls a second, instead of gateway_rate."""


def new_key() -> str:
    """A key for somebody; it is shown once and kept nowhere."""
    return secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """What stands in the configuration."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


def in_toml(name: str, key: GatewayKey) -> str:
    """The table of a key, for oncepool.toml."""
    lines = [f"[gateway.keys.{json.dumps(name)}]"]
    lines += [
        f"{field} = {json.dumps(value)}" for field, value in key.model_dump().items() if value
    ]
    return "\n".join(lines)


def shown_keys(keys: object) -> object:
    """As they may be shown: without their hashes."""
    if not isinstance(keys, dict):
        return "***"  # JSON that was not taken apart
    return {
        name: {"roles": key.roles, "types": key.types} if isinstance(key, GatewayKey) else "***"
        for name, key in keys.items()
    }


def _parsed(value: object) -> object:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(
                'this is not JSON; write {"name": {"hash": ..., "roles": ...}}'
            ) from None
    return value


def _checked(keys: dict[str, GatewayKey]) -> dict[str, GatewayKey]:
    for name in keys:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no key's name: 1 to 100 letters, digits, dots, hyphens, underscores"
            )
    hashes = [key.hash for key in keys.values()]
    if len(set(hashes)) < len(hashes):
        raise ValueError("one key stands under two names: give each its own")
    return keys


GatewayKeys = Annotated[
    dict[str, GatewayKey], NoDecode, BeforeValidator(_parsed), AfterValidator(_checked)
]
"""Name -> key. The name stands in logs, and for who moved a request."""
