"""A request that another one asks for: written in the same transaction as that one's effects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from feedback.contract.envelope import JSON
from feedback.contract.exact_json import encode_payload
from feedback.contract.headers import LONGEST_DELAY, check_name
from feedback.contract.ids import uuid7
from feedback.errors import Malformed


class FollowUp(NamedTuple):
    """One of them; `due` None = at once."""

    id: str
    type: str
    payload: bytes
    key: bytes
    due: datetime | None


def follow_up(
    type: str,
    payload: Any,
    at: datetime | None,
    request_id: str | None,
    key: str | bytes | None,
) -> FollowUp:
    """Checks what a handler asks for. Raises ValueError for what could never run."""
    if at is not None:
        if at.tzinfo is None:
            raise ValueError("follow_up(at=) needs a time with an offset, as datetime.now(UTC)")
        if at > datetime.now(UTC) + LONGEST_DELAY:
            raise ValueError(f"follow_up(at={at}) lies more than ten years ahead")
    name = str(uuid7()) if request_id is None else request_id
    try:
        check_name("the request id", name)
        check_name("the request type", type)
    except Malformed as error:
        raise ValueError(f"follow_up: {error}") from None
    lane = name if key is None else key
    return FollowUp(
        name,
        type,
        encode_payload(payload, JSON),
        lane.encode() if isinstance(lane, str) else lane,
        at,
    )
