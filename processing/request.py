"""What a handler may know about the request it runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar

from processing.errors import NotSupported
from processing.stopping import STOPPING

PayloadT = TypeVar("PayloadT")


@dataclass(slots=True)
class Request(Generic[PayloadT]):
    """One request. Not frozen, since one is made per run and freezing doubles what that costs.

    `key` is the ordering key as it came, `headers` holds those that are not part of the contract,
    `deadline` is when this run is stopped (aware, UTC), `payload` is the parsed payload.
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

    @property
    def stopping(self) -> bool:
        """True once this process must come to an end: finish or raise `Retry` soon."""
        return STOPPING.is_set()

    def follow_up(
        self,
        type: str,
        payload: Any,  # noqa: ARG002 - the signature of the version that has it
        *,
        at: datetime | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Write another request in the same transaction. Not in this version."""
        raise NotSupported(
            f"request.follow_up({type!r}) is not available in this version: "
            "send the request with feedback.Client after this one is done"
        )
