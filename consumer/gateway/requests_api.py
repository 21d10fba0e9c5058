"""Sending requests, and reading what became of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from consumer.gateway.calls import (
    CallerHere,
    Id,
    KeyedRoute,
    Type,
    json_response,
    location,
    named,
    parts_here,
    retry_headers,
    unless_gone,
)
from consumer.gateway.guard import REQUEST_ID
from consumer.gateway.idempotency import read_key
from consumer.gateway.large_answers import LargeAnswer
from consumer.gateway.openapi import LIST, SEND, STATUS
from consumer.gateway.parts import GatewayParts
from consumer.gateway.preferences import Preferences, read_preferences
from consumer.gateway.problems import invalid, problem_of, unknown
from consumer.gateway.statuses import status_json
from consumer.gateway.submission import Payload, is_sent, read_options, read_payload, refused
from feedback.client.message import SubmitOptions
from feedback.contract.ids import uuid7
from feedback.errors import OncepoolError
from feedback.status.status import Status

MOST_IDS = 500

router = APIRouter(tags=["requests"], route_class=KeyedRoute)

Wait = Annotated[
    int,
    Query(
        ge=0,
        description="Whole seconds to wait for a settled state, cut to gateway_max_wait.",
        examples=[10],
    ),
]
Ids = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=200)]],
    Query(min_length=1, max_length=MOST_IDS, description="Request ids.", examples=[["order-17"]]),
]


@router.post("/requests/{type:name}", **SEND)
async def send(request: Request, type: Type, caller: CallerHere) -> Response:
    """Send a request. With the same Idempotency-Key it is the same request, and runs once."""
    parts = parts_here(request)
    caller.need("send")
    caller.need_type(named("the request type", type))
    key = read_key([value for name, value in request.headers.raw if name == b"idempotency-key"])
    if key is None and parts.settings.gateway_require_key:
        raise invalid("send the header Idempotency-Key, and the same one again", "key_required")
    body = await request.body()
    payload = read_payload(type, body, request.headers.get("content-type"))
    options = read_options(request.headers.raw, payload.content_type)
    preferences = read_preferences(request.headers.getlist("prefer"))
    request_id = key or str(uuid7())
    options["request_id"] = request.scope[REQUEST_ID] = request_id
    waits = preferences.wait is not None
    compared = None if type in parts.settings.gateway_uncompared else payload.fingerprint
    with parts.keys.hold(request_id, type, compared), parts.slots.slot(wanted=waits) as free:
        wait = _bounded(parts, preferences.wait) if free else None
        try:
            status = await unless_gone(
                request, _sent(parts, type, payload, options, known_key=key, wait=wait)
            )
        except OncepoolError as error:
            raise problem_of(error, request_id) from error
        except (ValueError, TypeError) as error:
            raise refused(error, id=request_id) from error
    return _accepted(request, status, preferences, wait)


@router.get("/requests/{id:name}", **STATUS)
async def status(request: Request, id: Id, caller: CallerHere, wait: Wait = 0) -> Response:
    """The status of a request; with `wait` as soon as it is settled."""
    parts = parts_here(request)
    caller.need("read")
    named("the request id", id)
    with parts.slots.slot(wanted=bool(wait)) as free:
        seconds = (_bounded(parts, wait) or 0.0) if free else 0.0
        if seconds:
            found = await unless_gone(request, parts.statuses.wait(id, seconds))
        else:
            found = await parts.statuses.one(id)
    if found is None:
        raise unknown(id)
    caller.need_own(id, found.type)
    return json_response(status_json(found), headers=retry_headers(found))


@router.get("/requests", **LIST)
async def statuses(request: Request, id: Ids, caller: CallerHere) -> Response:
    """The statuses of many requests at once, in the order of their ids."""
    caller.need("read")
    for one in id:
        named("the request id", one)
    lists = parts_here(request).lists
    return LargeAnswer(request, lambda held: lists.read(id, caller, held))


async def _sent(
    parts: GatewayParts,
    type: str,
    payload: Payload,
    options: SubmitOptions,
    *,
    known_key: str | None,
    wait: float | None,
) -> Status:
    """The status after it was sent, where it has to be. `wait` in seconds, None: not at all."""
    known, new = (None, True) if known_key is None else await _known(parts, known_key)
    uncompared = parts.settings.gateway_uncompared
    if not is_sent(known, type, payload, uncompared, now=datetime.now(UTC)):
        assert known is not None  # noqa: S101  (what is not known is sent)
        if known.final or not wait:
            return known
        return await parts.statuses.wait(known.id, wait) or known
    if wait:
        status = await parts.sender.call(type, payload.body, options, wait)
        if status.settled or (told := (await _known(parts, status.id))[0]) is None:
            return status
        return told if told.final else status  # where Redis has lost it, or is away
    accepted = await parts.sender.send(type, payload.body, options, new=new)
    return known or accepted


async def _known(parts: GatewayParts, id: str) -> tuple[Status | None, bool]:
    """What stands, and whether nothing does; both are no where nobody answers.

    Then the request is sent: it can't run twice.
    """
    try:
        status = await parts.statuses.one(id)
    except OncepoolError:
        return None, False
    return status, status is None


def _bounded(parts: GatewayParts, wait: int | None) -> float | None:
    return None if wait is None else float(min(wait, parts.settings.gateway_max_wait))


def _accepted(
    request: Request, status: Status, preferences: Preferences, wait: float | None
) -> Response:
    headers = {"Location": location(request, status.id), **retry_headers(status)}
    if applied := preferences.applied(wait):
        headers["Preference-Applied"] = applied
    return json_response(status_json(status), 200 if status.final else 202, headers)
