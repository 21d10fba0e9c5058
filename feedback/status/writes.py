"""The one place that builds a status: what it says, how long it lives, who wants a hint of it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from feedback.contract.states import State
from feedback.status.status import DEFAULT_TTL, encode_status
from feedback.status.store import StatusWrite


class StatusRow(Protocol):
    """What a row of the journal has for the status of its request."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def fingerprint(self) -> bytes | None: ...
    @property
    def result(self) -> bytes | str | None:
        """JSON."""

    @property
    def error(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def superseded_by(self) -> str | None: ...
    @property
    def retry_at(self) -> datetime | None:
        """When a request that waits runs; None in every other state."""


def row_status(
    row: StatusRow,
    at: datetime,
    *,
    tell_fingerprint: bool = True,
    ttl: int | None = None,
    reply_to: str | None = None,
    bump: bool = False,
) -> StatusWrite:
    """The status of a journal row as it stands since `at`.

    `tell_fingerprint` is False where producers cannot make the same fingerprint. `ttl` is the
    type's, in seconds; None = the default. `bump` and `reply_to` as in StatusWrite.
    """
    return status_write(
        row.id, row.type, State(row.state), row.run, code=row.code, attempt=row.attempt, at=at,
        fingerprint=row.fingerprint if tell_fingerprint else None, result=row.result,
        error=row.error, reason=row.reason, retry_at=row.retry_at,
        superseded_by=row.superseded_by, ttl=ttl, bump=bump, reply_to=reply_to,
    )  # fmt: skip


def status_write(
    id: str,
    type: str,
    state: State,
    run: int,
    *,
    code: str,
    attempt: int,
    at: datetime,
    fingerprint: bytes | None = None,
    result: bytes | str | None = None,
    error: str | None = None,
    reason: str | None = None,
    retry_at: datetime | None = None,
    superseded_by: str | None = None,
    ttl: int | None = None,
    bump: bool = False,
    reply_to: str | None = None,
) -> StatusWrite:
    """A status that no row stands behind, as it is since `at`. Times are aware; `result` is JSON.

    One that waits lives until `retry_at` and for `ttl` seconds after that.
    """
    value = encode_status(
        id, type, state, run, code=code, attempt=attempt, at=at, fingerprint=fingerprint,
        result=result, error=error, reason=reason, retry_at=retry_at, superseded_by=superseded_by,
    )  # fmt: skip
    seconds = DEFAULT_TTL if ttl is None else ttl
    if retry_at is not None:
        seconds += max(0, int((retry_at - at).total_seconds()))
    return StatusWrite(id, value, seconds, bump, reply_to)
