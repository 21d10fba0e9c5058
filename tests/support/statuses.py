"""Statuses as a store is given them, and what it says of them."""

from __future__ import annotations

from datetime import UTC, datetime

from feedback.contract.states import State
from feedback.status.status import StatusFields, StatusWrite
from feedback.status.store import StatusStore

AT = datetime(2030, 5, 1, 12, 0, tzinfo=UTC)


def write(
    id: str,
    state: State,
    run: int = 1,
    *,
    code: str = "ok",
    bump: bool = False,
    ttl: int = 60,
    reply_to: str | None = None,
    final: bool = False,
    at: datetime = AT,
) -> StatusWrite:
    fields = StatusFields(id, "t", state, run, code=code, attempt=1, at=at)
    return StatusWrite.of(fields, ttl=ttl, bump=bump, reply_to=reply_to, final=final)


def standing(store: StatusStore, id: str) -> tuple[str, int, str] | None:
    status = store.read([id])[0]
    return None if status is None else (status.state, status.run, status.code)
