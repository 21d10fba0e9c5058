"""Dead letters: looked for, each with all that is known of it, retried and dropped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, cast, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.since import parse_since
from consumer.gateway.calls import named, unless_gone
from consumer.gateway.dead_letter_api import is_own
from consumer.gateway.operators import OperatorAnswer, OperatorMoves
from consumer.gateway.pages.confirming import digest
from consumer.gateway.pages.filters import FILTER_RULE, may_be_filter
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import AT_ONCE, MOST_LETTERS
from consumer.gateway.pages.payload_view import PayloadView
from consumer.gateway.pages.request_pages import journal_of
from consumer.gateway.pages.visitor import UI, Form, FormHere, Visitor, VisitorHere, why_of
from consumer.gateway.problems import NO_DEAD_LETTER, HttpProblem, invalid, unknown
from feedback.contract.states import DeadLetterReason
from feedback.errors import OncepoolError
from feedback.journal.rows import readable_headers
from feedback.operations.bounded import TookTooLong
from feedback.operations.dead_letters import DeadLetterRef, Kind
from feedback.operations.inspection import NEWEST
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row

router = APIRouter(include_in_schema=False)

FILTERS: Final = ("kind", "type", "reason", "since", "search")
MOST_MOVED: Final = MOST_LETTERS
"""Dead letters that are moved at once, one by one."""
WORDS: Final = {"retry": "Retry", "drop": "Drop"}
Number = Annotated[str, Path(pattern="^[0-9]{1,18}$")]


@router.get(f"{UI}/dead-letters")
async def letters(request: Request, who: VisitorHere) -> Response:
    """The latest of them."""
    given = _given(dict(request.query_params))
    deep = request.query_params.get("deep") == "1"
    rows: list[Row] = []
    problem = ""
    looking = journal_of(who).dead(_asked(who, given), AT_ONCE + 1, deep=deep)
    try:
        rows = await (unless_gone(request, looking) if deep else looking)
    except TookTooLong as error:
        problem = str(error)
    return page(
        request,
        who,
        "letters.html",
        title="Dead letters",
        given=given,
        rows=[_listed(row) for row in rows[:AT_ONCE]],
        more=len(rows) > AT_ONCE,
        problem=problem,
        deep=deep,
        newest=NEWEST,
        deeper=urlencode(given | {"deep": "1"}),
        kinds=get_args(Kind),
        reasons=[str(reason) for reason in DeadLetterReason],
    )


@router.get(f"{UI}/dead-letters/{{number}}")
async def letter(request: Request, number: Number, who: VisitorHere) -> Response:
    """A message that could not become a request."""
    journal_of(who)
    row = await _found(_operator(who), who, DeadLetterRef("message", number))
    view = PayloadView(who.parts.settings.gateway_masked_fields)
    return page(
        request, who, "letter.html", title=f"Dead letter {number}", row=row,
        payload=view.payload(row["payload"]),
        headers=view.headers(readable_headers(row["headers"])),
    )  # fmt: skip


@router.post(f"{UI}/dead-letters/ask")
async def ask(request: Request, sent: FormHere) -> Response:
    """Says how many it is about, and asks why."""
    who, form = sent
    return await _question(request, who, form, *await _chosen(who, form))


@router.post(f"{UI}/dead-letters/do")
async def do(request: Request, sent: FormHere) -> Response:
    """Does it, unless others stand there by now than were asked about, or in another run."""
    who, form = sent
    action = _action(form)
    by = By(f"gateway:{who.caller.name}", why_of(form))
    places, more = await _chosen(who, form)
    given = form.one("digest")
    if given != _digest(places):
        return await _question(request, who, form, places, more, changed=given != "")
    new = _renaming(who, form, places)
    operator = _operator(who)
    if len(places) == 1 or not who.caller.sees_all:
        for place in places:  # before any is moved
            await _found(operator, who, place)
    if action == "drop":
        outcome = await _moved(places, lambda one: operator.drop_dead(one, by))
    else:
        outcome = await _moved(places, lambda one: operator.retry_dead(one, by, *new))
    who.pages.services.forget()
    letters = {place.name for place in places if place.kind == "message"}
    return page(
        request, who, "moved.html", 503 if outcome.problem else 200, title=WORDS[action],
        outcome=outcome, letters=letters, back=form.one("back"), shown=100,
    )  # fmt: skip


async def _moved(
    places: list[DeadLetterRef], move: Callable[[DeadLetterRef], Awaitable[OperatorAnswer]]
) -> MoveOutcome:
    outcome = MoveOutcome()
    outcome.plan(place.name for place in places)
    for place in places:
        outcome.begin([place.name])
        try:
            answer = await move(place)
        except OncepoolError as error:
            outcome.broke_off(error)
            break
        outcome.done(
            [] if answer.row is None else [answer.row],
            [] if answer.refusal is None else [answer.refusal],
        )
    return outcome


def _renaming(
    who: Visitor, form: Form, places: list[DeadLetterRef]
) -> tuple[str | None, str | None]:
    """The id and the type that a message gets."""
    new_id, new_type = (form.one(f"new_{name}") or None for name in ("id", "type"))
    for name, text in (("id", new_id), ("type", new_type)):
        if text is not None:
            if [place.kind for place in places] != ["message"]:
                raise invalid("a new id or type goes with one message")
            named(f"the new {name}", text)
    if new_type is not None:
        who.caller.need_type(new_type)
    return new_id, new_type


async def _question(
    request: Request, who: Visitor, form: Form, places: list[DeadLetterRef], more: bool, *,
    changed: bool = False,
) -> Response:  # fmt: skip
    action = _action(form)
    everything = form.one("all") == "1"
    given = _given({name: form.one(name) for name in FILTERS})
    names = [f"{place.kind}:{place.name}" for place in places]
    fields = [("all", "1"), *given.items()] if everything else [("ids", one) for one in names]
    fields += [(name, form.one(name)) for name in ("new_id", "new_type") if form.one(name)]
    return page(
        request,
        who,
        "ask.html",
        title=WORDS[action],
        action=action,
        where="/dead-letters/do",
        verb=WORDS[action],
        n=len(places),
        digest=_digest(places),
        more=more,
        names=names[:20],
        fields=fields,
        filters=None,
        back=form.one("back"),
        changed=changed,
        result=False,
    )


async def _chosen(who: Visitor, form: Form) -> tuple[list[DeadLetterRef], bool]:
    """Those that it is about, requests with their runs, and whether there are more."""
    places = await _places(who, form)
    moved = places[:MOST_MOVED]
    ids = [place.name for place in moved if place.kind == "request"]
    stands = {one.id: one.run for one in await journal_of(who).named(ids)} if ids else {}
    runs = [stands.get(one.name) if one.kind == "request" else None for one in moved]
    known = [one._replace(run=run) for one, run in zip(moved, runs, strict=True)]
    return known, len(places) > MOST_MOVED


def _digest(places: list[DeadLetterRef]) -> str:
    return digest((place.kind, place.name, place.run) for place in places)


async def _places(who: Visitor, form: Form) -> list[DeadLetterRef]:
    """Those that it is about. Raises HttpProblem where there is none."""
    if form.one("all") == "1":
        if not who.caller.sees_all:
            raise HttpProblem(403, "forbidden", "this API key is for some types only: tick them")
        given = _given({name: form.one(name) for name in FILTERS})
        if not given:
            raise invalid("name what is to be moved: without filters it would be all there is")
        return await journal_of(who).chosen_dead(_asked(who, given))
    places = []
    for one in form.all("ids"):
        kind, _, name = one.partition(":")
        if kind not in get_args(Kind) or (kind == "message" and not name.isdecimal()):
            raise invalid("ids: kind:name of dead letters")
        named("the name", name)
        places.append(DeadLetterRef(cast("Kind", kind), name))
    if not places:
        raise invalid("nothing is chosen: tick dead letters, or take all that match")
    return places


async def _found(operator: OperatorMoves, who: Visitor, place: DeadLetterRef) -> Row:
    """It, where it is his business. Raises HttpProblem."""
    rows = await operator.dead_letter(place.name, place.kind)
    if not rows or not is_own(who.caller, rows[0]):
        raise unknown(place.name, NO_DEAD_LETTER)
    return rows[0]


def _operator(who: Visitor) -> OperatorMoves:
    if who.parts.operator is None:
        raise HttpProblem(501, "not_configured", "this gateway has no journal: set database_url")
    return who.parts.operator


def _action(form: Form) -> str:
    action = form.one("action")
    if action not in WORDS:
        raise invalid(f"action: one of {', '.join(WORDS)}")
    return action


def _given(query: dict[str, str]) -> dict[str, str]:
    given = {name: text for name in FILTERS if (text := query.get(name, "").strip())}
    if not all(map(may_be_filter, given.values())):
        raise invalid(f"a filter has {FILTER_RULE}")
    if given.get("kind", "message") not in get_args(Kind):
        raise invalid(f"kind: one of {', '.join(get_args(Kind))}")
    return given


def _asked(who: Visitor, given: dict[str, str]) -> dict[str, Any]:
    if "search" in given and not who.may_operate:
        # Else somebody could try out what hidden fields hold.
        raise HttpProblem(403, "forbidden", "to look for texts needs an API key that may operate")
    filters: dict[str, Any] = {**given, "types": who.types}
    if "since" in given:
        try:
            filters["since"] = parse_since(given["since"], datetime.now(UTC))
        except ValueError as error:
            raise invalid(f"since: {error}") from None
    return filters


def _listed(row: Row) -> Row:
    name = str(row["id"]) if row["kind"] == "message" else row["request_id"]
    return {**row, "name": name, "ref": f"{row['kind']}:{name}"}
