"""What goes wrong, as RFC 9457 has it: `application/problem+json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from consumer.admin.journal import JournalRefused, JournalUnreachable
from consumer.config.masking import mask_url
from consumer.errors import ConsumerError
from feedback.errors import (
    ClientClosed,
    Conflict,
    DeliveryFailed,
    DeliveryPending,
    JournalError,
    OncepoolError,
    OutboxError,
    QueueFull,
    RequestIdInUse,
    RequestTooLarge,
    StoreUnavailable,
)
from feedback.operations.bounded import TookTooLong

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final = {
    "invalid_request": "The request can't be read",
    "invalid_payload": "The payload is not what its content type says",
    "key_required": "An Idempotency-Key is required",
    "unauthorized": "No valid API key",
    "forbidden": "This is not allowed",
    "unknown": "There is no such request",
    "not_found": "There is nothing here",
    "method_not_allowed": "There is no such method here",
    "timeout": "The request took too long to arrive",
    "in_progress": "The first request of this key is not answered yet",
    "refused": "The request's state does not allow it",
    "too_large": "The request is too large",
    "unsupported_media_type": "This content type is not taken here",
    "unsupported_encoding": "Bodies are taken without an encoding",
    "another_payload": "The key belongs to a request with another payload",
    "too_many_requests": "Too many requests of this API key",
    "not_configured": "This gateway has not been given what that needs",
    "unavailable": "A service behind the gateway does not answer",
    "gone": "The client has gone",
    "no_answer": "No answer came in time",
    "error": "Something went wrong in the gateway",
}
"""Code of a problem -> its title."""

RETRY_AFTER: Final = 5
"""Seconds, where nothing says when a service is back."""


class HttpProblem(HTTPException):
    """Ends a request. `members` stand beside those that each problem has."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        """`code` is one of TITLES; `retry_after` in seconds."""
        given = dict(headers or {})
        if retry_after is not None:
            given["Retry-After"] = str(max(1, math.ceil(retry_after)))
        super().__init__(status, detail, given)
        self.code = code
        self.members = members

    def response(self) -> Response:
        """The answer."""
        body = {
            "type": f"urn:oncepool:problem:{self.code}",
            "title": TITLES[self.code],
            "status": self.status_code,
            "detail": self.detail,
            **self.members,
        }
        return Response(orjson.dumps(body), self.status_code, self.headers, MEDIA_TYPE)


def invalid(detail: str, code: str = "invalid_request", **members: Any) -> HttpProblem:
    """What the client sent can't be read."""
    return HttpProblem(400, code, detail, **members)


def unavailable(detail: str, **members: Any) -> HttpProblem:
    """Something is away that comes back by itself."""
    return HttpProblem(503, "unavailable", detail, retry_after=RETRY_AFTER, **members)


def gone() -> HttpProblem:
    """Nobody is there to be answered."""
    return HttpProblem(499, "gone", "the client has gone away")


_NO_REQUEST: Final = (
    "nothing is known of this request: it has not arrived, was lost, or is forgotten; sending it"
    " again with the same key is safe as long as the journal keeps its rows"
)
NO_DEAD_LETTER: Final = (
    "no dead letter has this number or id: it was dropped or pruned, or is a request that runs"
    " again or has ended otherwise; look at the list of dead letters"
)
NO_SCHEDULE: Final = "there is no schedule of this name: look at the list of schedules"


def unknown(id: str, detail: str = _NO_REQUEST) -> HttpProblem:
    """Nobody knows what is named so, by default a request, or it is none of the caller's."""
    return HttpProblem(404, "unknown", detail, id=id)


def another_payload(id: str) -> HttpProblem:
    """The same id always means the same request."""
    return HttpProblem(
        422,
        "another_payload",
        "this key was used with another type or payload: what was sent now does not run; send it"
        " under a key of its own",
        id=id,
    )


_AWAY: Final = (StoreUnavailable, QueueFull, DeliveryFailed, DeliveryPending, JournalUnreachable,
                JournalRefused, JournalError, ClientClosed, OutboxError, ConsumerError,
                TookTooLong)  # fmt: skip


def problem_of(error: OncepoolError, id: str | None = None) -> HttpProblem:
    """An error of ours as a problem, of the request with this id where it is of one."""
    members: dict[str, Any] = {} if id is None else {"id": id}
    if isinstance(error, Conflict | RequestIdInUse):
        return another_payload(error.id)
    if isinstance(error, RequestTooLarge):
        return HttpProblem(413, "too_large", str(error), **members)
    if isinstance(error, DeliveryFailed) and (why := error.oversize) is not None:
        return HttpProblem(413, "too_large", why, **members)
    if isinstance(error, _AWAY):
        return unavailable(mask_url(str(error)), **members)
    return HttpProblem(500, "error", mask_url(str(error)), **members)
