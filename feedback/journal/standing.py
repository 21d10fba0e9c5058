"""What the journal knows of an id when a copy of its request arrives."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from feedback.contract.states import State
from feedback.status.status import encode_status


class Standing(NamedTuple):
    """One row as the look-up saw it. `result` is JSON text."""

    id: str
    type: str
    state: str
    code: str
    attempt: int
    run: int
    crashes: int
    fingerprint: bytes | None  # None: its writer could not make one
    result: str | None
    error: str | None
    reason: str | None
    superseded_by: str | None
    not_before: datetime | None
    created_at: datetime
    finished_at: datetime | None
    effect: str
    token: str | None
    expired: bool  # a claim whose lease has run out
    topic: str
    partition: int
    offset: int
    produced_at: datetime

    def status(self, *, with_fingerprint: bool) -> bytes:
        """Its status; without the fingerprint where producers cannot make the same one."""
        return encode_status(
            self.id,
            self.type,
            State(self.state),
            self.run,
            code=self.code,
            attempt=self.attempt,
            at=self.finished_at or self.created_at,
            fingerprint=self.fingerprint if with_fingerprint else None,
            result=None if self.result is None else self.result.encode(),
            error=self.error,
            reason=self.reason,
            retry_at=self.not_before,
            superseded_by=self.superseded_by,
        )
