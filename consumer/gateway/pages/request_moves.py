"""What operators do with requests: asked first, with how many there are, and then done."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple, cast, get_args

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import Ending
from consumer.gateway.bulk_moves import MOVES_FROM, BulkAction, BulkMover
from consumer.gateway.calls import named
from consumer.gateway.pages.confirming import digest
from consumer.gateway.pages.filters import NAMES, RequestFilters
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import MOST_CHOSEN
from consumer.gateway.pages.request_pages import filters_of, journal_of
from consumer.gateway.pages.visitor import UI, Form, FormHere, Visitor, why_of
from consumer.gateway.problems import HttpProblem, invalid
from consumer.gateway.unjournaled import explained
from feedback.contract.payloads import parse_json, write_json
from feedback.errors import OncepoolError
from feedback.operations.request_actions import By, ResultRefused
from feedback.operations.request_search import Chosen

router = APIRouter(include_in_schema=False)

WORDS: Final[dict[BulkAction, str]] = {
    "retry": "Run again",
    "cancel": "Cancel",
    "drop": "Drop",
    "done": "Resolve as done",
    "failed": "Resolve as failed",
    "again": "Resolve: it did not happen, run again",
}
WAIT: Final = 20.0
"""Seconds for those that run to come to their end."""


class Choice(NamedTuple):
    """What is to be moved, and as what it stands in the journal."""

    action: BulkAction
    ids: list[str]
    stands: dict[str, Chosen]
    """Of those that the journal knows."""
    filters: RequestFilters | None
    """None: they were named one by one."""
    more: bool = False

    @property
    def runs(self) -> dict[str, int] | None:
        """In which they are moved; None: in whichever they are.

        What waits is tried again by itself: a cancel is of the request, not of a run of it.
        """
        if self.action == "cancel":
            return None
        return {name: one.run for name, one in self.stands.items()}

    @property
    def digest(self) -> str:
        """Of what is asked about."""
        runs = self.runs or {}
        return digest(("request", name, runs.get(name)) for name in self.ids)

    def names(self, most: int) -> list[str]:
        """Of the first of them, in words."""
        return [
            f"{name} ({one.state}, run {one.run})" if (one := self.stands.get(name)) else name
            for name in self.ids[:most]
        ]


@router.post(f"{UI}/requests/ask")
async def ask(request: Request, sent: FormHere) -> Response:
    """Says how many it is about, and asks why."""
    who, form = sent
    return _asked(request, who, await _chosen(who, form), form.one("back"))


@router.post(f"{UI}/requests/do")
async def do(request: Request, sent: FormHere) -> Response:
    """Does it, unless others stand there by now than were asked about, or in another run."""
    who, form = sent
    by = By(f"gateway:{who.caller.name}", why_of(form))
    choice = await _chosen(who, form)
    given = form.one("digest")
    if given != choice.digest:
        return _asked(request, who, choice, form.one("back"), changed=given != "")
    outcome = await _move(who, choice, by, form.one("result"))
    who.pages.services.forget()
    return page(
        request, who, "moved.html", 503 if outcome.problem else 200, title=WORDS[choice.action],
        outcome=outcome, letters=(), back=form.one("back"), shown=100,
    )  # fmt: skip


def _asked(
    request: Request, who: Visitor, choice: Choice, back: str, *, changed: bool = False
) -> Response:
    verb = WORDS[choice.action]
    return page(
        request,
        who,
        "ask.html",
        title=verb,
        action=choice.action,
        where="/requests/do",
        verb=verb,
        n=len(choice.ids),
        digest=choice.digest,
        more=choice.more,
        names=choice.names(20),
        fields=[("ids", one) for one in choice.ids] if choice.filters is None else [
            ("all", "1"), *choice.filters.values.items()],
        filters=choice.filters,
        back=back,
        changed=changed,
        result=choice.action == "done" and len(choice.ids) == 1,
    )  # fmt: skip


def _action(form: Form) -> BulkAction:
    action = form.one("action")
    if action not in get_args(BulkAction):
        raise invalid(f"action: one of {', '.join(get_args(BulkAction))}")
    return cast("BulkAction", action)


def _filters(who: Visitor, form: Form) -> RequestFilters | None:
    """What all are to be moved that match; None where they are named one by one."""
    if form.one("all") != "1":
        return None
    filters = filters_of(who, {name: form.one(name) for name in NAMES})
    if not filters:
        raise invalid("name what is to be moved: without filters it would be all there is")
    return filters


async def _chosen(who: Visitor, form: Form) -> Choice:
    """Those that it is about. Raises HttpProblem where there is none."""
    action = _action(form)
    filters = _filters(who, form)
    if filters is None:
        return await _ticked(who, form, action)
    allowed = MOVES_FROM[action]
    if filters["state"] and filters["state"] not in allowed:
        raise HttpProblem(
            409, "refused", f"{WORDS[action]} is for requests that are {' or '.join(allowed)}, and"
            f" the filter says {filters['state']}"
        )  # fmt: skip
    if not filters["state"] and len(allowed) > 1:
        raise invalid(f"name a state in the filter: {', '.join(allowed)}")
    asked = {**filters.asked(who.types), "state": filters["state"] or allowed[0]}
    found = await journal_of(who).chosen(asked)
    stands = {one.id: one for one in found[:MOST_CHOSEN]}
    return Choice(action, sorted(stands), stands, filters, len(found) > MOST_CHOSEN)


async def _ticked(who: Visitor, form: Form, action: BulkAction) -> Choice:
    journal = journal_of(who)
    ids = form.all("ids")
    if not ids:
        raise invalid("nothing is chosen: tick requests, or take all that match")
    for one in ids:
        named("the request id", one)
    stands = {one.id: one for one in await journal.named(ids)}
    if not who.caller.sees_all:
        # The journal's type counts: a status may be of another request under the same id.
        missing = [one for one in ids if one not in stands]
        known = await who.parts.statuses.read(missing) if missing else []
        types = {one.id: one.type for one in known if one is not None}
        for one in ids:
            who.caller.need_own(one, stands[one].type if one in stands else types.get(one, ""))
    return Choice(action, ids, stands, None)


async def _move(who: Visitor, choice: Choice, by: By, result: str) -> MoveOutcome:
    mover: BulkMover | None = who.pages.mover
    if mover is None:
        raise HttpProblem(501, "not_configured", "this gateway has no journal: set database_url")
    value = None
    if result and choice.action == "done" and len(choice.ids) == 1:
        try:
            value = write_json(parse_json(result.encode()))
        except ValueError as error:
            raise invalid(f"the result: {error}") from None
    ending = None
    if choice.filters is None:
        ending = Ending(WAIT, None if who.caller.sees_all else who.caller.types)
    try:
        outcome = await mover.move(
            choice.action, choice.ids, by, ending, runs=choice.runs, result=value
        )
    except ResultRefused as error:
        raise invalid(f"the result: {error}") from None
    with suppress(OncepoolError):  # then it is said what the journal says
        outcome.refused = await explained(who.parts.statuses, outcome.refused, who.caller.may_see)
    return outcome
