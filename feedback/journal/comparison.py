"""Whether a message is the request that stands under its id, and whether it made its row. Pure.

It is the same of the same type, with the same payload. That is said without the code of the type.
Of payloads that only such code can compare nothing is said where somebody here has it. Where nobody
has, they are compared as producers do: what may be another request must not go unseen.
"""

from __future__ import annotations

from typing import Protocol

from feedback.contract.fingerprint import fingerprint
from feedback.contract.headers import JSON
from feedback.journal.rows import headers_of


class Stored(Protocol):
    """What is needed of a row. `payload` and `headers`: see StoredRequest."""

    @property
    def type(self) -> str: ...
    @property
    def fingerprint(self) -> bytes | None: ...
    @property
    def own_fingerprint(self) -> bool: ...
    @property
    def payload(self) -> bytes | None: ...
    @property
    def headers(self) -> str | None: ...


class Placed(Protocol):
    """What is needed of a row to say which message made it."""

    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def kafka_offset(self) -> int | None: ...


def made_by(row: Placed, place: tuple[str, int, int], *, again: bool) -> bool:
    """Whether a message has been run: by what its row says, or a later copy of it was.

    Only one that is read `again`, as `is_read_again` says: it is no resend, and not run then.
    """
    if not again or row.kafka_offset is None:
        return False
    topic, partition, offset = place
    return (row.topic, row.partition) == (topic, partition) and row.kafka_offset >= offset


def same_request(
    stored: Stored, type: str, payload: bytes | None, content_type: str, *, comparable: bool | None
) -> bool | None:
    """Whether a message asks for what stands under its id; None: that cannot be said here.

    `comparable`: whether its type has the fingerprint that producers make; None where nobody here
    knows the type. Only then the row is asked, as it may be older than the answer: rows of ended
    requests said once that producers can make any. A done one whose type makes its own has nothing
    left to compare.
    """
    if stored.type != type:
        return False
    if stored.payload is not None and stored.payload == payload:
        return True
    if comparable is False:
        return None
    known = stored.fingerprint
    if known is None or (comparable is None and stored.own_fingerprint):
        if stored.payload is None:
            return None
        kind_of_content = content_type_of(stored)
        if kind_of_content is None:
            return None
        known = fingerprint(stored.type, stored.payload, kind_of_content)
    # A message without a value has the fingerprint of no bytes.
    return known == fingerprint(type, payload or b"", content_type)


def content_type_of(stored: Stored) -> str | None:
    """Of the payload of a row; None where its headers are in no form that this version reads."""
    try:
        given = dict(headers_of(stored.headers)).get("content-type")
    except (TypeError, ValueError):
        return None
    return JSON if given is None else given.decode("utf-8", "replace")
