"""Which instances there are: each keeps a key in Redis that dies with it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT = 0.25


def connect(url: str) -> redis.Redis:
    """A client that gives up soon and tries nothing twice."""
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, retry=Retry(NoBackoff(), 0)
    )


def product_version() -> str:
    """The installed version of Oncepool."""
    try:
        return version("oncepool")
    except PackageNotFoundError:
        return "unknown"


class Registration:
    """The key ``<prefix>:instance:<id>``: one JSON object with a time to live."""

    def __init__(self, client: redis.Redis, prefix: str, instance: str, ttl: int) -> None:
        self._client = client
        self._key = f"{prefix}:instance:{instance}"
        self._ttl = ttl
        self._identity = {
            "id": instance,
            "host": socket.gethostname(),
            "pid": os.getppid(),
            "version": product_version(),
            "started_at": datetime.now(UTC),
        }

    def renew(self, facts: Mapping[str, Any]) -> None:
        """Writes who this is and what it does now. Raises redis.RedisError or OSError."""
        value = orjson.dumps(
            {**facts, **self._identity, "at": datetime.now(UTC)},
            default=str,
            option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS,
        )
        self._client.set(self._key, value, ex=self._ttl)

    def remove(self) -> None:
        """Says that this instance is gone. Raises redis.RedisError or OSError."""
        self._client.delete(self._key)


def instances(client: redis.Redis, prefix: str) -> list[dict[str, Any]]:
    """Every instance that is registered, by id. Raises redis.RedisError or OSError."""
    keys = sorted(client.scan_iter(match=f"{_literal(prefix)}:instance:*", count=1000))
    values: list[Any] = [client.get(key) for key in keys]
    return [orjson.loads(value) for value in values if value is not None]


def _literal(prefix: str) -> str:
    """A prefix whose pattern characters stand for themselves."""
    return "".join(f"\\{c}" if c in "*?[]\\^" else c for c in prefix)
