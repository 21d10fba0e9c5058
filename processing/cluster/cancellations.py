"""What operators want cancelled of what instances run: a hash in Redis for each instance.

An entry is read once, by the maintenance process of that instance, which looks for it as often as
at the limits. What nobody reads is gone after a while, so that no later run is hit.
"""

from __future__ import annotations

from typing import Any

import redis

READ_WITHIN = 30
"""Seconds after which what nobody has read means nothing any more."""


class Cancellations:
    """The hash `<prefix>:cancel:<instance>`: request id -> who wants it, and why.

    Each method raises redis.RedisError or OSError.
    """

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def ask(self, instance: str, request_id: str, reason: str) -> bool:
        """Asks an instance to cancel a request that it runs; again and again does no harm.

        False where the instance has still to read what it was asked before.
        """
        key = self._key(instance)
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hset(key, request_id, reason)
            pipeline.expire(key, READ_WITHIN)
            added, _ = pipeline.execute()
        return bool(added)

    def withdraw(self, instance: str, request_id: str) -> bool:
        """Takes an entry back; False where the instance has read it."""
        gone: Any = self._client.hdel(self._key(instance), request_id)
        return bool(gone)

    def take(self, instance: str) -> list[tuple[str, str]]:
        """What an instance is asked to cancel, each once: (request id, reason)."""
        key = self._key(instance)
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hgetall(key)
            pipeline.delete(key)
            found, _ = pipeline.execute()
        return [
            (name.decode(), reason.decode("utf-8", "replace")) for name, reason in found.items()
        ]

    def _key(self, instance: str) -> str:
        return f"{self._prefix}:cancel:{instance}"
