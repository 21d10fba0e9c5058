"""What a worker wants to have in the journal about one request."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from feedback.envelope import Envelope
from feedback.standing import Standing
from feedback.states import OK, State
from feedback.stored_headers import moment_of, pack_headers, request_headers


class Entry:
    """A row to be. Its fields are those of the row that the envelope does not have.

    It starts as what nearly every request becomes: done, at the first run.
    """

    __slots__ = (
        "attempt",
        "code",
        "crashes",
        "effect",
        "envelope",
        "error",
        "fingerprint",
        "reason",
        "result",
        "run",
        "standing",
        "started_at",
        "state",
        "token",
    )

    def __init__(self, envelope: Envelope, effect: str) -> None:
        self.envelope = envelope
        self.effect = effect
        self.state = State.DONE
        self.code = OK
        self.attempt = 1
        self.run = 1
        self.crashes = 0
        self.fingerprint: bytes | None = None
        self.result: bytes | None = None  # JSON
        self.error: str | None = None
        self.reason: str | None = None
        self.standing: Standing | None = None  # the row to replace
        self.token: str | None = None  # of a claim
        self.started_at: datetime | None = None  # of the run, where it may be told apart

    @property
    def packed_headers(self) -> bytes | None:
        """Headers for its row; None for a done one, which keeps neither them nor the payload."""
        if self.state is State.DONE:
            return None
        return pack_headers(request_headers(self.envelope))

    def parameters(self, at: datetime | None, lease: float | None = None) -> dict[str, Any]:
        """Every value of its row, by name, for the statements that write a single one."""
        envelope, seen = self.envelope, self.standing
        headers = self.packed_headers
        return {
            "id": envelope.id,
            "type": envelope.type,
            "state": str(self.state),
            "code": self.code,
            "attempt": self.attempt,
            "run": self.run,
            "crashes": self.crashes,
            "effect": self.effect,
            "fingerprint": self.fingerprint,
            "result": None if self.result is None else self.result.decode(),
            "error": self.error,
            "reason": self.reason,
            "payload": None if self.state is State.DONE else envelope.payload,
            "headers": None if headers is None else headers.decode(),
            "key": envelope.key,
            "reference": envelope.reference,
            "token": self.token,
            "lease": lease,
            "created_at": self.started_at,
            "produced_at": moment_of(envelope.time),
            "finished_at": at,
            "topic": envelope.topic,
            "partition": envelope.partition,
            "offset": envelope.offset,
            "seen_run": None if seen is None else seen.run,
            "seen_state": None if seen is None else seen.state,
            "seen_token": None if seen is None else seen.token,
        }
