"""Requests whose time is over: run again, they would end as rejected, and for good."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from feedback.contract.headers import parse_time
from feedback.journal.queries import query
from feedback.journal.rows import readable_headers
from feedback.postgres import Connection

EXPIRED: Final = "its ce_expirytime is over: it would be rejected. Submit it anew"


def is_over(expires_at: float | None) -> bool:
    """Whether this time, in seconds since the epoch, has come."""
    return expires_at is not None and expires_at <= datetime.now(UTC).timestamp()


def expired(connection: Connection, ids: Iterable[str], *, schema: str) -> frozenset[str]:
    """Those of the ids whose row has a ce_expirytime that is over."""
    rows = connection.execute(query("that_expire", schema), [list(ids)]).fetchall()
    return frozenset(one for one, headers in rows if is_over(_expires_at(headers)))


def _expires_at(headers: Any) -> float | None:
    text = dict(readable_headers(headers)).get("ce_expirytime")
    with suppress(ValueError, OverflowError):  # of an import that nobody has read yet
        return parse_time((text or b"").decode())
    return None
