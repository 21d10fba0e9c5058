"""What a handler may know about the request it runs, and the requests that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from typing_extensions import TypeVar

from feedback.contract.envelope import JSON
from feedback.contract.headers import check_name, is_too_far
from feedback.contract.ids import uuid7
from feedback.contract.payloads import encode_payload
from feedback.errors import Malformed
from feedback.tracing.switch import TRACING
from processing.handlers.stopping import STOPPING

if TYPE_CHECKING:
    from processing.handlers.call_threads import CallThreads

PayloadT = TypeVar("PayloadT", default=Any)


class FollowUp(NamedTuple):
    """A request that another one asks for, written with that one's result."""

    id: str
    type: str
    payload: bytes
    key: bytes
    """The ordering key."""
    due: datetime | None
    """When it may run, aware; None: at once."""
    trace: Sequence[tuple[str, bytes]] = ()
    """The trace context that asked for it, as headers; empty where tracing is off."""


@dataclass(slots=True)
class Request(Generic[PayloadT]):
    """One request. Not frozen, since one is made per run and freezing doubles what that costs."""

    id: str
    type: str
    key: bytes | None
    """The ordering key as it came."""
    attempt: int
    """The number of this attempt, from 1."""
    headers: dict[str, str | bytes]
    """Headers that are not part of the contract, by name."""
    deadline: datetime | None
    """When this run is stopped; aware, UTC."""
    topic: str
    partition: int
    offset: int
    payload: PayloadT
    """The parsed payload."""
    follow_ups: list[FollowUp] | None = None
    """What `follow_up` was asked for; None where that cannot be written."""
    threads: CallThreads | None = field(default=None, repr=False, compare=False)
    """Of a call of an `async def`: whether it was told to end."""

    @property
    def stopping(self) -> bool:
        """True once this run must come to an end: finish or raise `Retry` soon."""
        return STOPPING.told or (self.threads is not None and self.threads.told)

    def follow_up(
        self,
        type: str,
        payload: Any,
        *,
        at: datetime | None = None,
        request_id: str | None = None,
        key: str | bytes | None = None,
    ) -> str:
        """Has another request run once this one is done, at `at` (aware) or at once; its id.

        It is written with this one's result, in the transaction of its effects: both or neither.
        `payload` is anything that JSON can hold; without `key` its id is the ordering key.
        Raises ValueError for what could never run, and where this type has effect="none" or an
        on_error hook asks.
        """
        if self.follow_ups is None:
            raise ValueError(
                f'follow_up({type!r}): a type with effect="none" has no transaction to write it in,'
                " nor has an on_error hook"
            )
        asked = _checked(type, payload, at, request_id, key)
        self.follow_ups.append(asked)
        return asked.id


def _checked(
    type: str,
    payload: Any,
    at: datetime | None,
    request_id: str | None,
    key: str | bytes | None,
) -> FollowUp:
    """What a handler asks for. Raises ValueError for what could never run."""
    if at is not None:
        if at.tzinfo is None:
            raise ValueError("follow_up(at=) needs a time with an offset, as datetime.now(UTC)")
        if is_too_far(at.timestamp()):
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
        TRACING.context(),
    )
