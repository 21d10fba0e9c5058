"""A record: one Kafka message, or one row of the waiting queue, on its way to a worker.

A plain tuple, because marshal carries nothing else, with the places named below. `headers` is
None where the client library could not read them (the message is malformed). `type` is the
`ce_type` header where main could read it as UTF-8, else None. `claim` is the order under which
this instance has claimed a row of the waiting queue, None for a message, and READ_AGAIN, NOT_BEGUN
or LEFT_BEGUN for one that somebody had taken before and may not have finished; a row's first header
is `ce_id`, and its partition and offset are NOWHERE: its message's place stands in the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

Headers: TypeAlias = list[tuple[str, bytes | None]]
Record: TypeAlias = tuple[
    str,  # topic
    int,  # partition
    int,  # offset
    int,  # timestamp, ms since the epoch
    bytes | None,  # key
    bytes | None,  # value
    Headers | None,
    str | None,  # type
    int | None,  # claim, READ_AGAIN, NOT_BEGUN or LEFT_BEGUN
]

TOPIC: Final = 0
PARTITION: Final = 1
OFFSET: Final = 2
TIMESTAMP: Final = 3
KEY: Final = 4
VALUE: Final = 5
HEADERS: Final = 6
TYPE: Final = 7
CLAIM: Final = 8

NOWHERE: Final = -1
"""Partition and offset of a record that is no message."""

READ_AGAIN: Final = -1
"""In place of a claim: a message below the offset that was committed when its partition came to
this process. Whoever had it may have run it."""

NOT_BEGUN: Final = -2
"""The same of one that nobody has begun and not finished: whoever had it last said so when it let
the partition go."""

LEFT_BEGUN: Final = -3
"""The same of one that whoever had it last had begun then, and may be at yet."""

_OVERHEAD: Final = 64  # what a message without any content counts for
HEADER_SIZE: Final = 160
"""What a header counts for beside its content: a tuple, a str, bytes and a place in a list. A
message of 1 MiB may hold half a million."""


def record_size(record: Record) -> int:
    """Bytes that this record counts for against limits of memory and chunk size."""
    key, value, headers = record[KEY], record[VALUE], record[HEADERS]
    size = _OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers:
        size += HEADER_SIZE * len(headers)
        for name, content in headers:
            size += len(name) if content is None else len(name) + len(content)
    return size


def size_of(records: Iterable[Record]) -> int:
    """The same of several."""
    return sum(map(record_size, records))


def kind_of(record: Record) -> str:
    """What can be told of a record's type without user code: the type, or ``topic:<topic>``."""
    return record[TYPE] or f"topic:{record[TOPIC]}"


def place_text(record: Record) -> str:
    """Where a message stands: `topic/partition/offset`."""
    return f"{record[TOPIC]}/{record[PARTITION]}/{record[OFFSET]}"


def is_due(record: Record) -> bool:
    """Whether a record comes from a waiting row."""
    claim = record[CLAIM]
    return claim is not None and claim >= 0


def is_read_again(record: Record) -> bool:
    """Whether a message was taken by whoever had its partition before, and may have been run."""
    claim = record[CLAIM]
    return claim is not None and claim < 0


def may_have_begun(record: Record) -> bool:
    """Whether a message is read again that may have been begun and not finished."""
    return record[CLAIM] in (READ_AGAIN, LEFT_BEGUN)


def may_be_under_way(record: Record) -> bool:
    """Whether a message is read again that its old owner, alive then, may be at yet."""
    return record[CLAIM] == LEFT_BEGUN


def read_again(record: Record, *, begun: bool = True, left: bool = False) -> Record:
    """The same message as one that is read again.

    `begun`: it may have been begun; `left`: by who has let its partition go, and lived then.
    """
    if not begun:
        return (*record[:CLAIM], NOT_BEGUN)
    return (*record[:CLAIM], LEFT_BEGUN if left else READ_AGAIN)


def perhaps_done(record: Record) -> Record:
    """The same message as one that somebody may have run to its end, if not more is known of it."""
    return record if is_read_again(record) else read_again(record, begun=False)


def claim_of(record: Record) -> tuple[str, int]:
    """(request id, claim order) of a record from a waiting row, which name its claim.

    Raises ValueError for a message.
    """
    order = record[CLAIM]
    if order is None or order < 0:
        raise ValueError("a message has no claim")
    raw = (record[HEADERS] or [])[0][1] or b""
    return raw.decode(), order


def claim_token(instance: str, order: int) -> str:
    """The token of rows that an instance claimed under an order; no two orders share one."""
    return f"{instance}:{order}"
