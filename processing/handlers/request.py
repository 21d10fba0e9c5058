"""What a handler may know about the request it runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from processing.handlers.follow_up import FollowUp, follow_up
from processing.handlers.stopping import STOPPING

PayloadT = TypeVar("PayloadT")


@dataclass(slots=True)
class Request(Generic[PayloadT]):
    """One request. Not frozen, since one is made per run and freezing doubles what that costs.

    `key` is the ordering key as it came, `headers` holds those that are not part of the contract,
    `deadline` is when this run is stopped (aware, UTC), `payload` is the parsed payload.
    `follow_ups` collects what `follow_up` was asked for.
    """

    id: str
    type: str
    key: bytes | None
    attempt: int
    headers: dict[str, str | bytes]
    deadline: datetime | None
    topic: str
    partition: int
    offset: int
    payload: PayloadT
    follow_ups: list[FollowUp] | None = None

    @property
    def stopping(self) -> bool:
        """True once this process must come to an end: finish or raise `Retry` soon."""
        return STOPPING.is_set()

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
        Raises ValueError for what could never run, and where this type has effect="none".
        """
        if self.follow_ups is None:
            raise ValueError(
                f'follow_up({type!r}): a type with effect="none" has no transaction to write it in'
            )
        asked = follow_up(type, payload, at, request_id, key)
        self.follow_ups.append(asked)
        return asked.id
