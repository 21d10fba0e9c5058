"""Rows of `requests` in PostgreSQL's binary COPY format, packed by hand.

A third of what psycopg's general way costs: most of a row is the same for all requests of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final

from feedback.entry import Entry
from feedback.states import State

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"
ROWS_AT_ONCE: Final = 100
"""The server works on these while the next are packed."""

_COLUMNS = 22
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_SECONDS = 946_684_800
_EARLIEST, _LATEST = -62_100_000_000.0, 253_300_000_000.0  # what a datetime can hold as well
_NULL = b"\xff\xff\xff\xff"
_DONE_TAIL = _NULL * 5
_length = Struct(">i").pack
# Number of columns, then each with its length: offset, created, finished, produced (8 bytes),
# attempt, run, crashes, partition (4 bytes).
_fixed = Struct(">h" + "iq" * 4 + "ii" * 4).pack

_Same = tuple[str, str, str, str, str]


def pack_rows(entries: Sequence[Entry], created: datetime, finished: datetime) -> Iterator[bytes]:
    """The COPY data of these entries, in pieces, with the format's header and trailer."""
    created_at, finished_at = _micros(created), _micros(finished)
    same: dict[_Same, bytes] = {}
    yield HEADER
    for start in range(0, len(entries), ROWS_AT_ONCE):
        rows = [
            _row(entry, created_at, finished_at, same)
            for entry in entries[start : start + ROWS_AT_ONCE]
        ]
        yield b"".join(rows)
    yield TRAILER


def _row(entry: Entry, created: int, finished: int, same: dict[_Same, bytes]) -> bytes:
    envelope = entry.envelope
    time = envelope.time
    if not _EARLIEST <= time <= _LATEST:
        time = min(max(time, _EARLIEST), _LATEST)
    words = (envelope.type, entry.state, entry.code, entry.effect, envelope.topic)
    shared = same.get(words)
    if shared is None:
        shared = same[words] = b"".join(_field(word.encode()) for word in words)
    name, fingerprint = envelope.id.encode(), entry.fingerprint
    key, result = envelope.key, entry.result
    return b"".join(
        (
            _fixed(
                *(_COLUMNS, 8, envelope.offset, 8, created, 8, finished),
                *(8, int((time - _EPOCH_SECONDS) * 1_000_000)),
                *(4, entry.attempt, 4, entry.run, 4, entry.crashes, 4, envelope.partition),
            ),
            shared,
            _length(len(name)),
            name,
            _NULL if fingerprint is None else _field(fingerprint),
            _NULL if key is None else _field(key),
            # The first byte is the version of jsonb's binary form.
            _NULL if result is None else _length(len(result) + 1) + b"\x01" + result,
            _tail(entry) if entry.state is not State.DONE or envelope.reference else _DONE_TAIL,
        )
    )


def _tail(entry: Entry) -> bytes:
    """error, reason, reference, payload, headers."""
    texts = (entry.error, entry.reason, entry.envelope.reference)
    fields = [None if text is None else text.encode() for text in texts]
    headers = entry.packed_headers
    fields.append(None if headers is None else entry.envelope.payload)
    fields.append(None if headers is None else b"\x01" + headers)
    return b"".join(_NULL if field is None else _field(field) for field in fields)


def _field(data: bytes) -> bytes:
    return _length(len(data)) + data


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
