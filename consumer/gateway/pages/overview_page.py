"""The overview: what runs, what waits, how it goes, and what somebody should look at."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.admin.overview import Look
from consumer.gateway.access import Caller
from consumer.gateway.pages import plots
from consumer.gateway.pages.advice import notices
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import OverTime
from consumer.gateway.pages.services import running_of
from consumer.gateway.pages.visitor import UI, VisitorHere
from consumer.gateway.pages.words import age, figure
from feedback.contract.states import DUPLICATE, READ_AGAIN, SETTLED

router = APIRouter(include_in_schema=False)


@router.get(f"{UI}/")
async def overview(request: Request, who: VisitorHere) -> Response:
    """All at one look."""
    whole = await who.pages.services.whole()
    look = seen_by(who.caller, whole.look)
    running = sorted(running_of(look), key=lambda row: str(row["since"]))
    return page(
        request,
        who,
        "overview.html",
        title="Overview",
        look=look,
        whole=whole,
        summary=look.summary(),
        notices=notices(look),
        running=running,
        plots=_plots(who.caller, whole.over_time),
        states=_states(look),
        ended=_ended(who.caller, whole.over_time),
    )


def seen_by(caller: Caller, look: Look) -> Look:
    """What of a look is the business of somebody who has to do with certain types only."""
    if caller.sees_all:
        return look
    shown = Look(topics=look.topics, problems=dict(look.problems))
    if look.instances is not None:
        shown.instances = [
            {**facts, "running_requests": [row for row in facts.get("running_requests") or ()
                                           if caller.may_see(row["type"])]}
            for facts in look.instances
        ]  # fmt: skip
    if look.outbox is not None:
        shown.outbox = [row for row in look.outbox if caller.may_see(row["type"])]
    return shown


def _states(look: Look) -> list[tuple[str, Any]]:
    """How many are in each state that somebody may want to look at."""
    if look.journal is None:
        return []
    waiting = sum(row["waiting"] for row in look.journal.types)
    return [
        ("waiting", waiting),
        ("in_doubt", look.journal.in_doubt),
        ("dead", look.journal.dead),
    ]


def _ended(caller: Caller, over_time: OverTime | None) -> dict[str, int]:
    """How many have come to each end in the minutes of the plots."""
    ended: Counter[str] = Counter()
    for row in () if over_time is None else over_time.outcomes:
        once = row["state"] in SETTLED and row["code"] not in (DUPLICATE, READ_AGAIN)
        if once and caller.may_see(row["type"]):
            ended[row["state"]] += row["n"]
    return dict(sorted(ended.items(), key=lambda pair: -pair[1]))


def _plots(caller: Caller, over_time: OverTime | None) -> list[plots.Plot]:
    if over_time is None:
        return []
    step = over_time.step
    # The minute that is not over yet would look like a fall.
    end = int(time.time()) // step * step - step
    window = (end - over_time.minutes * 60 + step, end, step)

    def own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            row for row in rows if caller.may_see(row["type"]) and window[0] <= row["at"] <= end
        ]

    partly = over_time.times_minutes
    said = "" if partly == over_time.minutes else f"the last {partly} minutes only: too many rows"
    ended, known = own(over_time.ended), own(over_time.times)
    return [
        plots.plot("Ended a second", plots.throughput(ended, window), window, figure),
        plots.plot("Wait, from the producer to the start", plots.times(known, "wait"), window, age,
                   said),
        plots.plot("Run, from the start of its transaction", plots.times(known, "run"), window, age,
                   said),
    ]  # fmt: skip
