"""Statuses as commands of Redis or Valkey, packed for the wire. Pure.

A status that is final is set as it is, many by one MSETEX: nothing later can follow it, so there is
nothing to compare. Others go through a script, many by one call, which keeps what it must not
replace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeVar

from feedback.status.hints import hint_messages
from feedback.status.replacement import WITHOUT_ROW_MARKS
from feedback.status.status import StatusWrite


def _finds(*marks: bytes) -> bytes:
    return b" or ".join(b"string.find(value, '%b', 1, true)" % mark for mark in marks)


# replacement.replacement() in Lua, one key after the other. ARGV, for each of KEYS: value, ttl in
# seconds, 1 for a bump. Bytes 6 to 11 of a value are its v: run number and rank.
SCRIPT: Final = b"""\
local function write(key, new, ttl, bump)
  local old = redis.pcall('GETRANGE', key, 6, 11)
  if type(old) == 'string' and string.find(old, '^%d%d%d%d%d%d$') then
    local standing = string.byte(old, 6) - 48
    if standing == 9 then return end
    if bump then
      if standing ~= 1 and standing ~= 2 and standing ~= 4 then return end
      local run = math.min(tonumber(string.sub(old, 1, 5)) + 1, 99999)
      new = string.sub(new, 1, 6) .. string.format('%05d', run) .. string.sub(new, 12)
    else
      local v = string.sub(new, 7, 12)
      local rank = string.byte(v, 6) - 48
      local later = v > old and not (standing == 8 and string.sub(v, 1, 5) == string.sub(old, 1, 5))
      local renewed = v == old and standing == 5
      if rank ~= 9 and not (later or renewed) then
        local capped = string.sub(v, 1, 5) == '99999' and string.sub(old, 1, 5) == '99999'
        local unsettled = rank >= 3 and (standing == 4 or standing == 5)
        if not (capped or unsettled) then return end
        local value, at = redis.call('GET', key), '"at":"([^"Z]*)'
        local is, was = string.match(new, at) or '', string.match(value, at) or ''
        if not (capped and is > was) then
          if not (unsettled and (UNSEEN or standing == 4 and (BY_CODE))) then return end
          if is < was and (rank == 3 or standing == 5) then return end
        end
      end
    end
  end
  redis.call('SET', key, new, 'EX', ttl)
end
for n, key in ipairs(KEYS) do
  write(key, ARGV[3 * n - 2], ARGV[3 * n - 1], ARGV[3 * n] == '1')
end
""".replace(b"UNSEEN", _finds(*WITHOUT_ROW_MARKS[:1])).replace(
    b"BY_CODE", _finds(*WITHOUT_ROW_MARKS[1:])
)
# Deletes those of KEYS that are statuses and whose time, without the Z, is before ARGV[1]; not what
# says `accepted` (byte 11): that is of who uses the id anew, and is not read yet.
DROP: Final = b"""\
for _, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  local at = type(value) == 'string' and string.match(value, '^{"v":.-"at":"([^"Z]*)')
  if at and at < ARGV[1] and string.sub(value, 12, 12) ~= '1' then redis.call('DEL', key) end
end
"""
_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()
# The first script command of a batch carries the text, so the rest never meets NOSCRIPT.
_EVAL = b"$4\r\nEVAL\r\n$%d\r\n%b\r\n" % (len(SCRIPT), SCRIPT)
_EVALSHA = b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n" % _SHA
_PUBLISH = b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
TOGETHER: Final = 100
"""Keys of one command: the server does nothing else meanwhile."""
_MAX_TTL = 10 * 366 * 86_400

Commands = list[tuple[bytes, int]]
"""Commands with the number of statuses that each of them writes."""
Item = TypeVar("Item")


def status_commands(
    writes: Sequence[StatusWrite], key_prefix: bytes, *, together: bool
) -> Commands:
    """Writes the statuses; `together` where the server knows MSETEX."""
    final = [write for write in writes if write.final]
    commands = _sets(final, key_prefix) if not together else _sets_together(final, key_prefix)
    if len(final) < len(writes):
        commands += _script_calls([write for write in writes if not write.final], key_prefix)
    return commands


def hint_commands(writes: Sequence[StatusWrite]) -> list[bytes]:
    """Publishes the hints that producers wait for."""
    commands = []
    for channel, message in hint_messages(writes).items():
        name = channel.encode()
        commands.append(_PUBLISH % (len(name), name, len(message), message))
    return commands


def time_text(moment: datetime) -> bytes:
    """A time as in `at`, without the Z: so one without a fraction sorts before those with one."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat().encode()


def _sets(writes: Sequence[StatusWrite], key_prefix: bytes) -> Commands:
    commands: Commands = []
    for write in writes:
        ttl = _ttl(write.ttl)
        pair = _pair(write, key_prefix)
        commands.append((b"*5\r\n$3\r\nSET\r\n%b$2\r\nEX\r\n%b" % (pair, ttl), 1))
    return commands


def _sets_together(writes: Sequence[StatusWrite], key_prefix: bytes) -> Commands:
    by_ttl: dict[int, list[bytes]] = {}
    for write in writes:
        by_ttl.setdefault(write.ttl, []).append(_pair(write, key_prefix))
    commands: Commands = []
    for ttl, pairs in by_ttl.items():
        for part in _parts(pairs):
            count = b"%d" % len(part)
            commands.append(
                (
                    b"*%d\r\n$6\r\nMSETEX\r\n$%d\r\n%b\r\n%b$2\r\nEX\r\n%b"
                    % (4 + 2 * len(part), len(count), count, b"".join(part), _ttl(ttl)),
                    len(part),
                )
            )
    return commands


def _script_calls(writes: Sequence[StatusWrite], key_prefix: bytes) -> Commands:
    commands: Commands = []
    script = _EVAL
    for part in _parts(writes):
        keys = b"".join([_bulk(key_prefix + write.id.encode()) for write in part])
        values = b"".join(
            [
                b"%b%b$1\r\n%d\r\n" % (_bulk(write.value), _ttl(write.ttl), write.bump)
                for write in part
            ]
        )
        count = b"%d" % len(part)
        call = b"*%d\r\n%b%b%b%b" % (3 + 4 * len(part), script, _bulk(count), keys, values)
        commands.append((call, len(part)))
        script = _EVALSHA
    return commands


def _parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), TOGETHER):
        yield items[start : start + TOGETHER]


def _pair(write: StatusWrite, key_prefix: bytes) -> bytes:
    key = key_prefix + write.id.encode()
    return b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(write.value), write.value)


def _bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


@lru_cache(maxsize=64)
def _ttl(seconds: int) -> bytes:
    return _bulk(b"%d" % min(max(seconds, 1), _MAX_TTL))
