"""Dead letters: messages that could not become a request, and dead requests."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime
from starlette.responses import Response

from consumer.admin.plain_json import as_shown
from consumer.gateway.access import Caller
from consumer.gateway.calls import CallerHere, Id, KeyedRoute, json_response, named, parts_here
from consumer.gateway.models import LetterBody, MoveBody
from consumer.gateway.openapi import LETTER, LETTERS, MOVE
from consumer.gateway.operator_api import answered, by, operator_of
from consumer.gateway.operators import MOST_LETTERS, OperatorMoves
from consumer.gateway.problems import NO_DEAD_LETTER, HttpProblem, invalid, unknown
from feedback.operations.dead_letters import DeadLetterRef, Kind
from feedback.operations.dead_message import type_to_run

router = APIRouter(tags=["dead letters"], route_class=KeyedRoute)

Text = Annotated[str | None, Query(max_length=200)]
KindHere = Annotated[Kind | None, Query(description="Of a name that two kinds share.")]
Limit = Annotated[int, Query(ge=1, le=MOST_LETTERS)]


@router.get("/dead-letters", **LETTERS)
async def dead_letters(
    request: Request,
    caller: CallerHere,
    *,
    kind: KindHere = None,
    type: Text = None,
    reason: Text = None,
    since: AwareDatetime | None = None,
    search: Text = None,
    limit: Limit = 100,
) -> Response:
    """The latest dead letters, of the types that the API key is for."""
    operator = operator_of(parts_here(request), caller)
    if any("\0" in (text or "") for text in (type, reason, search)):
        raise invalid("a filter holds a zero byte")
    filters = {
        "kind": kind, "type": type, "types": None if caller.sees_all else caller.types,
        "reason": reason, "since": since, "search": search,
    }  # fmt: skip
    rows = await operator.dead(filters, limit)
    # What a structured event would run as only its body says.
    return json_response([as_shown(row) for row in rows if is_own(caller, row)])


@router.get("/dead-letters/{name:name}", **LETTER)
async def dead_letter(
    request: Request, name: Id, caller: CallerHere, kind: KindHere = None
) -> Response:
    """All that is known of a dead letter: the number of a message, or a request's id."""
    operator = operator_of(parts_here(request), caller)
    return json_response(as_shown(await _found(operator, caller, name, kind)))


@router.post("/dead-letters/{name:name}/retry", **MOVE)
async def retry(
    request: Request,
    name: Id,
    caller: CallerHere,
    kind: KindHere = None,
    body: LetterBody | None = None,
) -> Response:
    """Run a dead request again, or make a request of a message, under another id where given."""
    operator = operator_of(parts_here(request), caller)
    row = await _found(operator, caller, name, kind)
    place = DeadLetterRef(row["kind"], name)
    given = body or LetterBody()
    if place.kind == "request" and (given.id or given.type):
        raise invalid("a dead request keeps its id and type")
    for what, text in (("the new id", given.id), ("the new type", given.type)):
        if text is not None:
            named(what, text)
    if given.type is not None:
        caller.need_type(given.type)
    return answered(await operator.retry_dead(place, by(caller, body), given.id, given.type), name)


@router.post("/dead-letters/{name:name}/drop", **MOVE)
async def drop(
    request: Request,
    name: Id,
    caller: CallerHere,
    kind: KindHere = None,
    body: MoveBody | None = None,
) -> Response:
    """Delete a message, or cancel a dead request, whose id stays known."""
    operator = operator_of(parts_here(request), caller)
    row = await _found(operator, caller, name, kind)
    place = DeadLetterRef(row["kind"], name)
    return answered(await operator.drop_dead(place, by(caller, body)), name)


def is_own(caller: Caller, row: dict[str, Any]) -> bool:
    """Whether it is his: by its type, and by that of the request that a message would become."""
    if caller.sees_all or row["kind"] == "request":
        return caller.may_see(row.get("type"))
    runs_as = type_to_run(row)
    return caller.may_see(row.get("type")) and (runs_as is None or caller.may_see(runs_as))


async def _found(
    operator: OperatorMoves, caller: Caller, name: str, kind: Kind | None
) -> dict[str, Any]:
    """The one of this name that is the caller's business. Raises HttpProblem."""
    named("the name", name)
    rows = [row for row in await operator.dead_letter(name, kind) if is_own(caller, row)]
    if not rows:
        raise unknown(name, NO_DEAD_LETTER)
    if len(rows) > 1:
        raise HttpProblem(
            409,
            "refused",
            f"{name} is the number of a message and the id of a dead request: say which with"
            " ?kind=message or ?kind=request",
            id=name,
        )
    return rows[0]
