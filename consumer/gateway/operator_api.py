"""What operators do with requests."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.gateway.access import Caller
from consumer.gateway.calls import (
    JSON,
    CallerHere,
    Id,
    KeyedRoute,
    json_response,
    named,
    parts_here,
)
from consumer.gateway.models import AskedBody, CancelBody, MoveBody, ResolveBody
from consumer.gateway.openapi import MOVE
from consumer.gateway.operators import OperatorAnswer, OperatorMoves
from consumer.gateway.parts import GatewayParts
from consumer.gateway.problems import HttpProblem, invalid, unknown
from consumer.gateway.unjournaled import explained
from feedback.contract.payloads import encode_payload
from feedback.operations.request_actions import By, ResultRefused

router = APIRouter(tags=["operators"], route_class=KeyedRoute)


@router.post("/requests/{id:name}/retry", **MOVE)
async def retry(
    request: Request, id: Id, caller: CallerHere, body: MoveBody | None = None
) -> Response:
    """Run a dead, failed or cancelled request again, now."""
    operator = await _allowed(parts_here(request), caller, id)
    return await _told(request, caller, await operator.retry(id, by(caller, body)), id)


@router.post("/requests/{id:name}/cancel", **MOVE)
async def cancel(
    request: Request, id: Id, caller: CallerHere, body: CancelBody | None = None
) -> Response:
    """Take a request out of the queue; one that runs is ended, as at its timeout."""
    operator = await _allowed(parts_here(request), caller, id)
    wait = (body or CancelBody()).wait
    types = None if caller.sees_all else caller.types
    answer = await operator.cancel(id, by(caller, body), wait, types)
    return await _told(request, caller, answer, id)


@router.post("/requests/{id:name}/resolve", **MOVE)
async def resolve(request: Request, id: Id, caller: CallerHere, body: ResolveBody) -> Response:
    """Settle a request in doubt, once you know whether its effect happened."""
    result = None
    if "result" in body.model_fields_set:
        if body.as_ != "done":
            raise invalid("a result goes with as: done")
        try:
            result = encode_payload(body.result, JSON)
        except ValueError as error:
            raise invalid(f"the result: {error}") from None
    operator = await _allowed(parts_here(request), caller, id)
    try:
        answer = await operator.resolve(id, body.as_, by(caller, body), result, body.run)
    except ResultRefused as error:
        raise invalid(str(error)) from None
    return await _told(request, caller, answer, id)


def operator_of(parts: GatewayParts, caller: Caller) -> OperatorMoves:
    """Who moves things, for somebody who may ask for it. Raises HttpProblem."""
    caller.need("operate")
    if parts.operator is None:
        raise HttpProblem(501, "not_configured", "this gateway has no journal: set database_url")
    return parts.operator


def by(caller: Caller, body: AskedBody | None) -> By:
    """Who it is, and why, for the journal."""
    return By(f"gateway:{caller.name}", None if body is None else body.why)


def answered(answer: OperatorAnswer, id: str) -> Response:
    """What became of it. Raises HttpProblem where it was refused."""
    if answer.row is not None:
        return json_response(answer.row)
    refusal = answer.refusal
    if refusal is None or refusal.state is None:
        raise HttpProblem(
            404, "unknown", f"{id}: {refusal.reason if refusal else 'unknown'}", id=id
        )
    said = f"{id} {refusal.reason}"
    if answer.late:
        raise HttpProblem(504, "no_answer", said, retry_after=5, id=id, state=refusal.state)
    raise HttpProblem(409, "refused", said, id=id, state=refusal.state)


async def _told(request: Request, caller: Caller, answer: OperatorAnswer, id: str) -> Response:
    """As answered(), of a request: one that only the outbox or a status knows is not unknown."""
    refusal = answer.refusal
    if refusal is not None and refusal.state is None:
        statuses = parts_here(request).statuses
        (refusal,) = await explained(statuses, [refusal._replace(id=id)], caller.may_see)
        answer = answer._replace(refusal=refusal)
    return answered(answer, id)


async def _allowed(parts: GatewayParts, caller: Caller, id: str) -> OperatorMoves:
    """Who moves a request that is the caller's business."""
    operator = operator_of(parts, caller)
    named("the request id", id)
    if not caller.sees_all:
        # The journal's, as that is what is moved: a status may be of another request of this id.
        kind = await operator.type_of(id)
        if kind is None:
            known = await parts.statuses.one(id)
            if known is None:
                raise unknown(id)
            kind = known.type
        caller.need_own(id, kind)
    return operator
