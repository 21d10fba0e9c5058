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

from feedback.status.redis_connections import open_pool

TIMEOUT = 0.25
FORGOTTEN_AFTER = 3600.0
"""Seconds after which the index drops an instance that was killed."""


_LISTS = ("types", "running_requests", "missing_topics", "without_start")
_COUNTS = ("at_once", "reserved", "needs")
_NUMBERS = ("workers_wanted", "health_port")


def connect(url: str) -> redis.Redis:
    """A client that gives up soon and tries nothing twice."""
    return redis.Redis.from_pool(open_pool(url, TIMEOUT))


def product_version() -> str:
    """The installed version of Oncepool."""
    try:
        return version("oncepool")
    except PackageNotFoundError:
        return "unknown"


class Registration:
    """The key ``<prefix>:instance:<id>``: one JSON object with a time to live.

    Beside it stands an index, ``<prefix>:instances``, as finding keys by a pattern means to visit
    all keys that there are.
    """

    def __init__(self, client: redis.Redis, prefix: str, instance: str, ttl: int) -> None:
        self._client = client
        self._key = _key(prefix, instance)
        self._index = _index(prefix)
        self._ttl = ttl
        self._instance = instance
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
        # The server's clock: that of an instance may be hours ahead, and drop all the others.
        now: Any = self._client.time()[0]
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.set(self._key, value, ex=self._ttl)
            pipeline.zadd(self._index, {self._instance: now})
            pipeline.zremrangebyscore(self._index, "-inf", now - FORGOTTEN_AFTER)
            pipeline.expire(self._index, self._ttl + int(FORGOTTEN_AFTER))
            pipeline.execute()

    def remove(self) -> None:
        """Says that this instance is gone. Raises redis.RedisError or OSError."""
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.delete(self._key)
            pipeline.zrem(self._index, self._instance)
            pipeline.execute()


def instances(
    client: redis.Redis, prefix: str, left_out: list[str] | None = None
) -> list[dict[str, Any]]:
    """Every instance that is registered, by id. Raises redis.RedisError or OSError.

    What stands in the place of a registration and is none, or says what others rely on in another
    form, is left out, as it would hide the others; `left_out` gets its name.
    """
    known: Any = client.zrange(_index(prefix), 0, -1)
    if not known:
        return []
    names = [name.decode(errors="replace") for name in sorted(known)]
    values: Any = client.mget([_key(prefix, name) for name in names])
    found = []
    for name, value in zip(names, values, strict=True):
        if value is None:
            continue
        if (facts := _facts(value)) is not None:
            found.append(facts)
        elif left_out is not None:
            left_out.append(name)
    return found


def _facts(value: bytes) -> dict[str, Any] | None:
    try:
        facts = orjson.loads(value)
        datetime.fromisoformat(facts["at"])
        return facts if isinstance(facts["id"], str) and _in_form(facts) else None
    except (ValueError, TypeError, KeyError):
        return None


def _in_form(facts: dict[str, Any]) -> bool:
    """Whether all is of the kind that who reads it takes for granted; any of it may be missing."""
    counts = [facts.get(name) or {} for name in _COUNTS]
    return (
        all(isinstance(facts.get(name) or [], list) for name in _LISTS)
        and all(isinstance(kind, str) for kind in facts.get("types") or ())
        and all(isinstance(one, dict) for one in facts.get("running_requests") or ())
        and all(isinstance(one, dict) for one in counts)
        and all(isinstance(n, int) for one in counts for n in one.values())
        and all(isinstance(facts.get(name) or 0, int) for name in _NUMBERS)
    )


def _key(prefix: str, instance: str) -> str:
    return f"{prefix}:instance:{instance}"


def _index(prefix: str) -> str:
    return f"{prefix}:instances"
