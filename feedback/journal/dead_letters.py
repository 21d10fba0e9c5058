"""A dead letter: a message that can't become a request, and what is kept, counted and told of it.

It is kept in the journal, whole and with its place; no topic has it but its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from feedback.contract.counts import Count, NotRun
from feedback.contract.headers import reply_channel
from feedback.contract.record import HEADERS, TYPE, Record
from feedback.contract.states import DeadLetterReason, State
from feedback.contract.times import moment
from feedback.journal.rows import StoredRequest, headers_json
from feedback.status.status import StatusFields, StatusWrite


class DeadLetter(NamedTuple):
    """A message that can't become a request, or conflicts with a stored one."""

    request_id: str | None
    reason: DeadLetterReason
    error: str
    record: Record

    @property
    def counted_as(self) -> Count:
        """What it is counted as once it is stored."""
        return Count(self.record[TYPE] or "", NotRun.DEAD_LETTER, self.reason)

    def failed_status(self, at: datetime, *, ttl: int | None = None) -> list[StatusWrite]:
        """`failed/<reason>` for a message that is no request and whose id at least is valid."""
        if self.request_id is None:
            return []
        status = StatusFields(
            self.request_id, self.record[TYPE] or "", State.FAILED, 1, code=self.reason, attempt=1,
            at=at, reason=self.error,
        )  # fmt: skip
        hint = reply_channel(self.record[HEADERS])
        return [StatusWrite.of(status, ttl=ttl, reply_to=hint, bump=True)]

    def columns(self) -> dict[str, Any]:
        """What is kept of it; `headers` are JSON bytes."""
        topic, partition, offset, timestamp, key, value, headers, *_ = self.record
        return {
            "id": self.request_id, "reason": self.reason, "detail": self.error, "topic": topic,
            "partition": partition, "offset": offset, "produced": moment(timestamp / 1000),
            "key": key, "headers": headers_json(headers), "payload": value,
        }  # fmt: skip


def conflict_letter(
    request_id: str, type: str, stored: StoredRequest, record: Record, *, known: bool
) -> DeadLetter:
    """Of a message whose id belongs to another request; `known`: somebody here knows its type."""
    error = f"request id {request_id!r} belongs to a request with another payload"
    if stored.type != type:
        error = (
            f"request id {request_id!r} belongs to a request of type {stored.type!r}, not {type!r}"
        )
    elif not known and (stored.fingerprint is None or stored.own_fingerprint):
        error += (
            f"; no version here knows the type {type!r}: by a fingerprint= of its own it may be the"
            " same request. Once one does, retry this with --resend: what is the same is answered"
        )
    return DeadLetter(request_id, DeadLetterReason.CONFLICT, error, record)
