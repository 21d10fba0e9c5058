"""Request ids for those who bring none: UUIDs of version 7 (RFC 9562), ordered by time.

Time-ordered ids keep the journal's primary key compact; random ones cost it several times the
write-ahead log.
"""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_lock = threading.Lock()
_last_ms = 0  # guarded by _lock
_counter = 0  # guarded by _lock; 42 bits, starts anew at random in each millisecond


def uuid7() -> UUID:
    """A new id: 48 bits of milliseconds, a 42-bit counter, 32 random bits.

    Later ids of one process sort after earlier ones, also within a millisecond and when the
    clock is set back.
    """
    global _last_ms, _counter  # noqa: PLW0603  (the one sequence of this process)
    random = int.from_bytes(os.urandom(10))
    now = time.time_ns() // 1_000_000
    with _lock:
        if now > _last_ms:
            _last_ms = now
            _counter = (random >> 32) & ((1 << 41) - 1)  # its top bit is room to count
        else:
            _counter += 1
            if _counter >> 42:
                _last_ms += 1
                _counter = 0
        ms, counter = _last_ms, _counter
    value = (ms & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | (counter >> 30) << 64  # version, upper 12 bits of the counter
    value |= 0x2 << 62 | (counter & ((1 << 30) - 1)) << 32  # variant, lower 30 bits
    value |= random & 0xFFFF_FFFF
    return UUID(int=value)
