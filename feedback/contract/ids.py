"""Request ids for those who bring none: UUIDs of version 7 (RFC 9562), ordered by time.

Time-ordered ids keep the journal's primary key compact; random ones cost it several times the
write-ahead log.
"""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

from feedback.after_fork import after_fork

_LENGTH = 36
_TICKS = 4096
"""Parts of a millisecond that an id tells apart."""
_lock = threading.Lock()  # another one in a process that is forked
_last = 0  # guarded by _lock; ticks since the epoch
_counter = 0  # guarded by _lock; 30 bits, starts anew at random in each tick


def uuid7() -> UUID:
    """A new id: 48 bits of milliseconds, 12 of parts of one, a 30-bit counter, 32 random bits.

    Later ids of one process sort after earlier ones, also within a tick and when the clock is set
    back.
    """
    global _last, _counter  # noqa: PLW0603  (the one sequence of this process)
    random = int.from_bytes(os.urandom(8))
    now = time.time_ns() * _TICKS // 1_000_000
    with _lock:
        if now > _last:
            _last = now
            _counter = (random >> 32) & ((1 << 29) - 1)  # its top bit is room to count
        else:
            _counter += 1
            if _counter >> 30:
                _last += 1
                _counter = 0
        ticks, counter = _last, _counter
    ms, part = divmod(ticks, _TICKS)
    value = (ms & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | part << 64  # version
    value |= 0x2 << 62 | counter << 32  # variant
    value |= random & 0xFFFF_FFFF
    return UUID(int=value)


def _renew() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


after_fork(_renew)


def time_of(request_id: str) -> float | None:
    """When an id of `uuid7` was made, in seconds to the microsecond; None for any other id."""
    if len(request_id) != _LENGTH or request_id[14] != "7":
        return None
    try:
        # Of the text alone: the client asks for each request, and to make a UUID of it is dear.
        ticks = int(request_id[:8] + request_id[9:13] + request_id[15:18], 16)
    except ValueError:
        return None
    return ticks / (_TICKS * 1000)


def time_within(seconds: float, request_id: str) -> float:
    """A message's time, which has milliseconds, with the parts of one that an id of `uuid7` has.

    An id that was made at another time says nothing of it.
    """
    made = time_of(request_id)
    return made if made is not None and seconds - 1 < made < seconds + 0.001 else seconds
