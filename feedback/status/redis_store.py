"""The status store in Redis or Valkey.

Statuses of a chunk go out as one packed string over one connection: redis-py's own pipeline
costs four times the client's CPU. Each reply is read, in its own try, so that commands and
replies never get out of step; a time-out closes the connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import redis

from feedback.errors import StoreUnavailable
from feedback.status.redis_commands import (
    DROP,
    TOGETHER,
    hint_commands,
    status_commands,
    time_text,
)
from feedback.status.redis_connections import RedisConnections, open_pool
from feedback.status.status import Status, StatusWrite
from feedback.status.store import Hints, decode_or_none

_SLICE = 500  # commands, or keys of an MGET, sent at once
_SLICE_BYTES = 1 << 20
_UNKNOWN = ("unknown command", "no permissions")
"""What a server says that has no MSETEX, or does not let this user have it."""


class RedisStatusStore:
    """Statuses under `<prefix>:status:<id>`.

    Every step on the connection takes at most `timeout` seconds; nothing is tried twice, so the
    caller decides what a failure means. Connects on first use.
    """

    def __init__(
        self,
        url: str,
        prefix: str = "oncepool",
        *,
        timeout: float = 0.25,
        max_connections: int = 16,
    ) -> None:
        self.prefix = prefix
        self._timeout = timeout
        self._key_prefix = f"{prefix}:status:".encode()
        self._together = True
        """Until the server says that it cannot set many keys at once, as older ones."""
        self._origin = open_pool(url, timeout)
        self._connections = RedisConnections(self._origin, max_connections)

    def write(self, writes: Sequence[StatusWrite]) -> None:
        """Writes each status unless one stands that it must not replace, then sends the hints.

        Raises StoreUnavailable when some were not written; all of them may be written again.
        """
        for part in _slices(writes):
            self._write_slice(part)

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        """One answer an id, in their order; None where no status stands."""
        return [decode_or_none(value) for value in self.read_raw(ids)]

    def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
        """As read(), but the values as they stand."""
        answers: list[bytes | None] = []
        for start in range(0, len(ids), _SLICE):
            keys = [self._key_prefix + name.encode() for name in ids[start : start + _SLICE]]
            with self._connections.lend() as connection:
                connection.send_command("MGET", *keys)
                answers.extend(connection.read_response())
        return answers

    def drop(self, ids: Sequence[str], before: datetime) -> None:
        """As StatusStore has it."""
        for start in range(0, len(ids), TOGETHER):
            keys = [self._key_prefix + name.encode() for name in ids[start : start + TOGETHER]]
            with self._connections.lend() as connection:
                connection.send_command("EVAL", DROP, len(keys), *keys, time_text(before))
                connection.read_response()

    def subscribe(self, channel: str) -> Hints:
        """Subscribed when it returns, so that no hint sent after that is missed."""
        return _RedisHints(redis.Redis(connection_pool=self._origin), channel, self._timeout)

    def close(self) -> None:
        """Gives up the connections."""
        self._connections.close()
        self._origin.disconnect()

    def _write_slice(self, writes: Sequence[StatusWrite]) -> None:
        together = self._together
        commands = status_commands(writes, self._key_prefix, together=together)
        hints = hint_commands(writes)
        refused: list[tuple[redis.ResponseError, int]] = []
        with self._connections.lend() as connection:
            connection.send_packed_command([b"".join([c for c, _ in commands] + hints)])
            for _, count in commands:
                try:
                    connection.read_response()
                except redis.ResponseError as error:
                    refused.append((error, count))
            for _ in hints:
                # Refused: a channel that this user may not publish to. Its producer sweeps.
                with suppress(redis.ResponseError):
                    connection.read_response()
            if refused and not (together and _is_unknown(refused)):
                # Inside, so that the next try connects anew: after a failover this may be the old
                # primary, which refuses every write for as long as one stays with it.
                first, lost = refused[0][0], sum(count for _, count in refused)
                raise StoreUnavailable(
                    f"Redis refused {lost} of {len(writes)} statuses: {first}"
                ) from first
        if refused:
            self._together = False
            self._write_slice(writes)  # a status that is written twice is the same


class _RedisHints:
    """A subscription to one channel, on a connection of its own."""

    def __init__(self, client: redis.Redis, channel: str, timeout: float) -> None:
        self._pubsub = client.pubsub()  # type: ignore[no-untyped-call]
        try:
            confirmed = self._confirmed(channel, timeout)
        except (redis.RedisError, OSError) as error:
            self.close()
            raise StoreUnavailable(f"Redis is not available: {error}") from error
        if not confirmed:
            self.close()
            raise StoreUnavailable(f"Redis did not confirm the subscription to {channel!r}")

    def _confirmed(self, channel: str, timeout: float) -> bool:
        self._pubsub.subscribe(channel)
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            message = self._pubsub.get_message(timeout=left)
            if message is not None and message["type"] == "subscribe":
                return True
        return False

    def receive(self, timeout: float) -> bytes | None:
        try:
            message = self._pubsub.get_message(timeout=timeout)
        except (redis.RedisError, OSError) as error:
            raise StoreUnavailable(f"Redis is not available: {error}") from error
        if message is None or message["type"] != "message":
            return None
        data: bytes = message["data"]
        return data

    def close(self) -> None:
        self._pubsub.close()


def _is_unknown(refused: Sequence[tuple[redis.ResponseError, int]]) -> bool:
    return any(text in str(error).lower() for error, _ in refused for text in _UNKNOWN)


def _slices(writes: Sequence[StatusWrite]) -> Iterator[list[StatusWrite]]:
    part: list[StatusWrite] = []
    size = 0
    for write in writes:
        if part and (len(part) == _SLICE or size + len(write.value) > _SLICE_BYTES):
            yield part
            part, size = [], 0
        part.append(write)
        size += len(write.value)
    if part:
        yield part
