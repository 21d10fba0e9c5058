"""Shapes of what stands in the journal: a request's row, and a run that failed."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from feedback.contract.record import Headers
from feedback.contract.states import State
from feedback.status.status import StatusFields, StatusWrite

HOLD_OPEN: Final = "oncepool-hold-open"
"""A header that only rows have. Nobody has decided yet whether the request is held back, until when
or under which reference: whoever reads the row does, as of the message that it comes from."""


class StoredRequest(NamedTuple):
    """A row of the journal as the look-up finds it. `result` is JSON text."""

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
    token: str | None
    topic: str | None
    partition: int | None
    kafka_offset: int | None
    used: int
    not_before: datetime | None
    window_start: datetime | None
    coalesce_key: str | None
    produced_at: datetime
    status_ttl: int | None
    created_at: datetime
    finished_at: datetime | None
    payload: bytes | None
    """Only without a fingerprint that producers can make: it is compared by this."""
    headers: str | None
    """JSON; only where `payload` is."""
    own_fingerprint: bool
    """Producers cannot make the same one, as far as its writer knew."""
    lost_claims: int = 0
    """Owners in a row that were lost with it while it waited, perhaps while they ran it."""

    @property
    def at(self) -> datetime:
        """Since when it stands as it does, as far as the row says."""
        return self.finished_at or self.created_at

    @property
    def retry_at(self) -> datetime:
        """When it may be claimed: one that was parked is held back by nothing."""
        return self.not_before or self.created_at

    def status(self, at: datetime, *, tell_fingerprint: bool = True) -> StatusFields:
        """What it says as it stands since `at`.

        Without a fingerprint where the row says that producers cannot make the same one, or whoever
        asks knows: then `tell_fingerprint` is False. Of a row that is claimed it is what it said
        before: under the claim's run its end is told, another wait among others, and of equal ones
        the first stands.
        """
        state = State(self.state)
        claimed = state is State.WAITING and self.token is not None
        told = tell_fingerprint and not self.own_fingerprint
        return StatusFields(
            self.id, self.type, state, self.run - claimed, self.code, self.attempt, at,
            self.fingerprint if told else None, self.result, self.error, self.reason,
            self.retry_at if state is State.WAITING else None, self.superseded_by,
        )  # fmt: skip

    def told(
        self, at: datetime, ttl: int, reply_to: str | None = None, *, tell_fingerprint: bool = True
    ) -> StatusWrite:
        """As status(); it lives for `ttl` seconds where the row does not say what its type does."""
        status = self.status(at, tell_fingerprint=tell_fingerprint)
        return StatusWrite.of(status, ttl=self.status_ttl or ttl, reply_to=reply_to)


@dataclass(slots=True)
class RequestRow:
    """A row to write. `result` and `headers` are JSON bytes."""

    id: str
    type: str
    state: State
    code: str
    attempt: int
    run: int
    crashes: int
    fingerprint: bytes | None
    result: bytes | None
    error: str | None
    reason: str | None
    key: bytes | None
    reference: str | None
    payload: bytes | None
    headers: bytes | None
    topic: str
    partition: int
    kafka_offset: int
    produced_at: datetime
    effect: str
    finished_at: datetime | None
    used: int = 0
    not_before: datetime | None = None
    """When a row that waits is due; None for others."""
    window_start: datetime | None = None
    coalesce_key: str | None = None
    superseded_by: str | None = None
    status_ttl: int | None = None
    own_fingerprint: bool = False
    keeps_payload: bool = False
    """A row that is changed keeps its own payload, with its headers and what its fingerprint is."""
    lost_claims: int = 0
    """Owners in a row that were lost with it, perhaps while it ran."""
    asked_by: str | None = None
    """The request whose follow-up it is; only `JournalWriter.insert_missing` writes it."""

    def status(self, at: datetime) -> StatusFields:
        """What it says as it stands since `at`; a fingerprint only where producers can make it."""
        state = self.state
        fingerprint = None if self.own_fingerprint else self.fingerprint
        return StatusFields(
            self.id, self.type, state, self.run, self.code, self.attempt, at,
            fingerprint, self.result, self.error, self.reason,
            self.not_before if state is State.WAITING else None, self.superseded_by,
        )  # fmt: skip


class FailedRun(NamedTuple):
    """A run that did not succeed, for the request's timeline."""

    request_id: str
    run: int
    code: str
    error: str | None
    started_at: datetime
    ended_at: datetime
    traceback: str | None = None
    """Where its handler raised; None where nothing was raised."""


def headers_json(headers: Headers | None) -> bytes:
    """A message's headers as the journal keeps them: [[name, value in base64 or null], ...]."""
    return orjson.dumps(
        [
            [
                name.replace("\0", "\ufffd"),
                None if value is None else base64.b64encode(value).decode(),
            ]
            for name, value in headers or ()
        ]
    )


def headers_of(text: str | None) -> Headers:
    """The headers of a row, from the text of the column."""
    # psycopg's own reading of jsonb is a tenth of what a claim costs.
    return [] if text is None else stored_headers(orjson.loads(text))


def readable_headers_of(text: str | None) -> Headers:
    """The same; none where nobody can read them, of another version or written by hand."""
    try:
        return headers_of(text)
    except (TypeError, ValueError):
        return []


def stored_headers(pairs: Iterable[Sequence[Any]] | None) -> Headers:
    """The headers of a row, [[name, value in base64 or null], ...], as a message has them.

    Raises TypeError or ValueError where they are in another form.
    """
    headers = [
        (name, None if value is None else base64.b64decode(value)) for name, value in pairs or ()
    ]
    if not all(isinstance(name, str) for name, _ in headers):
        raise TypeError("a header's name is no text")
    return headers


def readable_headers(pairs: Any) -> Headers:
    """The same; none where nobody can read them, of another version or written by hand."""
    try:
        return stored_headers(pairs)
    except (TypeError, ValueError):
        return []
