"""Rows of messages that are done at their first run, as COPY takes them in binary form. Pure.

Nearly all rows are such ones, and only fourteen of their columns say anything. The form is that of
PostgreSQL's COPY (https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"): encoded
here a row costs a third of what it costs by way of an adapter for each value.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Final

from feedback.contract.states import OK, State

COLUMNS: Final = (
    "id", "type", "state", "code", "effect", "own_fingerprint",
    "fingerprint", "result", "key", "topic", "partition",
    "kafka_offset", "produced_at", "finished_at",
)  # fmt: skip
HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"

_EPOCH: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where PostgreSQL's time begins."""
_NULL: Final = b"\xff\xff\xff\xff"
_start = Struct("!hi").pack
_length = Struct("!i").pack
_int4 = Struct("!ii").pack
_end = Struct("!iqiqiq").pack


def done_row(
    id: str,
    type: str,
    *,
    fingerprint: bytes | None,
    own_fingerprint: bool,
    result: bytes | None,
    key: bytes | None,
    topic: str,
    partition: int,
    offset: int,
    produced_at: int,
    finished_at: int,
) -> bytes:
    """One row in the order of COLUMNS; `result` is JSON, times are microseconds since 1970."""
    name = id.encode()
    return b"".join(
        (
            _start(len(COLUMNS), len(name)),
            name,
            _constants(type, own_fingerprint),
            _NULL if fingerprint is None else _length(len(fingerprint)) + fingerprint,
            # 1 is the version of jsonb's form.
            _NULL if result is None else b"%b\x01%b" % (_length(len(result) + 1), result),
            _NULL if key is None else _length(len(key)) + key,
            _place(topic, partition),
            _end(8, offset, 8, produced_at - _EPOCH, 8, finished_at - _EPOCH),
        )
    )


def copied(rows: Iterable[bytes]) -> bytes:
    """What COPY FROM STDIN (FORMAT binary) is given."""
    return b"".join((HEADER, *rows, TRAILER))


@lru_cache(maxsize=1024)
def _constants(type: str, own_fingerprint: bool) -> bytes:
    texts = (_text(value) for value in (type, State.DONE.value, OK, "transaction"))
    return b"".join((*texts, _length(1), bytes((own_fingerprint,))))


@lru_cache(maxsize=4096)
def _place(topic: str, partition: int) -> bytes:
    return _text(topic) + _int4(4, partition)


def _text(value: str) -> bytes:
    data = value.encode()
    return _length(len(data)) + data
