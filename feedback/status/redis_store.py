"""The status store in Redis or Valkey.

Statuses of a chunk go out as one packed string over one connection: redis-py's own pipeline
costs four times the client's CPU. Each reply is read, in its own try, so that commands and
replies never get out of step; a time-out closes the connection.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.connection import BlockingConnectionPool
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from feedback.errors import StoreUnavailable
from feedback.status.status import Status, StatusWrite, hint_messages
from feedback.status.store import Hints, decode_or_none

# store.replacement() in Lua. KEYS[1] status key; ARGV: value, ttl in seconds, 1 for a bump.
# Bytes 6 to 11 of a value are its v: run number and rank.
SCRIPT: Final = b"""\
local new, bump = ARGV[1], ARGV[3] == '1'
local old = redis.pcall('GETRANGE', KEYS[1], 6, 11)
if type(old) == 'string' and string.find(old, '^%d%d%d%d%d%d$') then
  local standing = string.byte(old, 6) - 48
  if standing == 9 then return 0 end
  if bump then
    if standing ~= 1 and standing ~= 2 and standing ~= 4 then return 0 end
    local run = math.min(tonumber(string.sub(old, 1, 5)) + 1, 99999)
    new = string.sub(new, 1, 6) .. string.format('%05d', run) .. string.sub(new, 12)
  else
    local v = string.sub(new, 7, 12)
    local rank = string.byte(v, 6) - 48
    local later = v > old and not (standing == 8 and string.sub(v, 1, 5) == string.sub(old, 1, 5))
    local renewed = v == old and standing == 5
    if rank ~= 9 and not (later or renewed) then
      if rank < 3 or standing ~= 4 then return 0 end
      local value = redis.call('GET', KEYS[1])
      if not (string.find(value, '"code":"database_unavailable"', 1, true)
          or string.find(value, '"code":"shutdown"', 1, true)) then return 0 end
    end
  end
end
redis.call('SET', KEYS[1], new, 'EX', ARGV[2])
return 1
"""
_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()
# The first command of a batch carries the text, so the rest never meets NOSCRIPT.
_EVAL = b"*7\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(SCRIPT), SCRIPT)
_EVALSHA = b"*7\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n" % _SHA
_PUBLISH = b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"

_SLICE = 500  # commands, or keys of an MGET, sent at once
_SLICE_BYTES = 1 << 20
_MAX_TTL = 10 * 366 * 86_400
_KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


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
        options: dict[str, Any] = {"socket_keepalive_options": _KEEPALIVE}
        if url.startswith("unix:"):
            options = {}
        # The defaults of redis-py try ten times and wait 5 s: one call could hang for a minute.
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=max_connections,
            timeout=1.0,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            **options,
        )

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
            with self._connection() as connection:
                connection.send_command("MGET", *keys)
                answers.extend(connection.read_response())
        return answers

    def subscribe(self, channel: str) -> Hints:
        """Subscribed when it returns, so that no hint sent after that is missed."""
        return _RedisHints(redis.Redis(connection_pool=self._pool), channel, self._timeout)

    def close(self) -> None:
        """Gives up the connections."""
        self._pool.disconnect()

    def _write_slice(self, writes: Sequence[StatusWrite]) -> None:
        commands = [self._command(write) for write in writes]
        commands[0] = _EVAL + commands[0][len(_EVALSHA) :]
        hints = hint_messages(writes)
        for channel, message in hints.items():
            name = channel.encode()
            commands.append(_PUBLISH % (len(name), name, len(message), message))
        refused: list[redis.ResponseError] = []
        with self._connection() as connection:
            connection.send_packed_command([b"".join(commands)])
            for _ in writes:
                try:
                    connection.read_response()
                except redis.ResponseError as error:
                    refused.append(error)
            for _ in hints:
                # Refused: a channel that this user may not publish to. Its producer sweeps.
                with suppress(redis.ResponseError):
                    connection.read_response()
            if refused:
                # Inside, so that the next try connects anew: after a failover this may be the old
                # primary, which refuses every write for as long as one stays with it.
                raise StoreUnavailable(
                    f"Redis refused {len(refused)} of {len(writes)} statuses: {refused[0]}"
                ) from refused[0]

    def _command(self, write: StatusWrite) -> bytes:
        key = self._key_prefix + write.id.encode()
        ttl = b"%d" % min(max(write.ttl, 1), _MAX_TTL)
        return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$1\r\n%d\r\n" % (
            _EVALSHA, len(key), key, len(write.value), write.value, len(ttl), ttl, write.bump,
        )  # fmt: skip

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection for one exchange; closed on any error, as replies might be left in it."""
        connection = None
        try:
            connection = self._pool.get_connection()  # type: ignore[no-untyped-call]
            yield connection
        except (redis.RedisError, OSError) as error:
            if connection is not None:
                connection.disconnect()
            raise StoreUnavailable(f"Redis is not available: {error}") from error
        except BaseException:
            if connection is not None:
                connection.disconnect()
            raise
        finally:
            if connection is not None:
                self._pool.release(connection)  # type: ignore[no-untyped-call]


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
