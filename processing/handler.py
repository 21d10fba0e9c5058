"""A registered handler: parses a payload, calls the function, encodes what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from processing.outcomes import Done, NotDone, Unknown
from processing.request import Request
from processing.retry import RetryPolicy

Effect = Literal["transaction", "external", "none"]


class Handler:
    """Made by App; the executor reads its attributes."""

    type: str
    effect: Effect
    timeout: float | None
    max_timeout: float | None
    batch: bool
    status_ttl: int
    check: Callable[..., Any] | None
    wants_tx: bool
    wants_request: bool
    custom_fingerprint: bool
    retries: RetryPolicy

    def parse(self, payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        """The payload object and its fingerprint (16 bytes).

        Raises InvalidPayload, which carries the fingerprint too; and whatever a validator or
        `fingerprint=` function of the user's raises by mistake (see outcome_of).
        """
        raise NotImplementedError

    def call(self, payload: Any, request: Request[Any] | None, tx: Any) -> bytes | None:
        """Run the function; its result as JSON bytes, None where it returned None.

        Raises whatever the function raised, or InvalidResult.
        """
        raise NotImplementedError

    def call_batch(
        self, requests: list[Request[Any]], tx: Any
    ) -> list[bytes | None | BaseException]:
        """Run a batch function: one outcome per request, in order.

        Raises whatever the function raised, or InvalidResult: then no request has an outcome.
        """
        raise NotImplementedError

    def call_check(self, request: Request[Any]) -> tuple[Done | NotDone | Unknown, bytes | None]:
        """Ask the check function; beside Done the result as JSON bytes."""
        raise NotImplementedError
