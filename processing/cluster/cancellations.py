"""What operators want cancelled of what instances run: a hash in Redis for each instance.

An entry is read once, by the maintenance process of that instance, which looks for it as often as
at the limits. It names the chunk in which the request was seen to run, so that no later run of the
same id is hit, however late it is read, or read again from a Redis that was restored. What nobody
reads is gone after a while.
"""

from __future__ import annotations

from typing import Any

import redis

READ_WITHIN = 30
"""Seconds after which what nobody has read means nothing any more."""


class Cancellations:
    """The hash `<prefix>:cancel:<instance>`: request id -> chunk, NUL, who wants it, and why.

    Without chunk and NUL whatever runs under that id is meant: so it is asked of and by versions
    that do not tell or name chunks. Each method raises redis.RedisError or OSError.
    """

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def ask(self, instance: str, request_id: str, reason: str, chunk: int | None = None) -> bool:
        """Asks an instance to cancel a request that it runs; again and again does no harm.

        `chunk` is the one in which it is meant; None: whichever. False where the instance has still
        to read what it was asked before.
        """
        key = self._key(instance)
        value = reason if chunk is None else f"{chunk}\0{reason}"
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hset(key, request_id, value)
            pipeline.expire(key, READ_WITHIN)
            added, _ = pipeline.execute()
        return bool(added)

    def withdraw(self, instance: str, request_id: str) -> bool:
        """Takes an entry back; False where the instance has read it."""
        gone: Any = self._client.hdel(self._key(instance), request_id)
        return bool(gone)

    def take(self, instance: str) -> list[tuple[str, str, int | None]]:
        """What an instance is asked to cancel, each once: (request id, reason, chunk)."""
        key = self._key(instance)
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hgetall(key)
            pipeline.delete(key)
            found, _ = pipeline.execute()
        return [(name.decode(), *_parts(value)) for name, value in found.items()]

    def _key(self, instance: str) -> str:
        return f"{self._prefix}:cancel:{instance}"


def _parts(value: bytes) -> tuple[str, int | None]:
    text = value.decode("utf-8", "replace")
    chunk, named, reason = text.partition("\0")
    return (reason, int(chunk)) if named and chunk.isdecimal() else (text, None)
