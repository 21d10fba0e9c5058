"""The overview: what runs, what waits, how it goes, and what somebody should look at."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from consumer.admin.overview import Look
from consumer.gateway.access import Caller
from consumer.gateway.pages import plots
from consumer.gateway.pages.advice import notices
from consumer.gateway.pages.filters import FILTER_RULE, may_be_filter
from consumer.gateway.pages.frame import page
from consumer.gateway.pages.journal_pages import OverTime
from consumer.gateway.pages.services import MINUTES, running_of
from consumer.gateway.pages.visitor import UI, VisitorHere
from consumer.gateway.pages.words import age, figure, moment
from consumer.gateway.problems import invalid
from feedback.contract.states import DUPLICATE, READ_AGAIN, SETTLED
from feedback.operations.request_reads import matches

router = APIRouter(include_in_schema=False)

WINDOWS: Final = (15, MINUTES)
"""Minutes that plots may be of: no more is asked for."""


class TypesShown(NamedTuple):
    """What plots and the table of types are about."""

    type: str
    """`*` stands for anything; "": all."""
    minutes: int

    def has(self, kind: str) -> bool:
        """Whether a type is among them."""
        return not self.type or matches(kind, self.type)


@router.get(f"{UI}/")
async def overview(request: Request, who: VisitorHere) -> Response:
    """All at one look."""
    shown = _shown(request)
    whole = await who.pages.services.whole()
    look = seen_by(who.caller, whole.look)
    running = sorted(running_of(look), key=lambda row: str(row["since"]))
    times = _own(who.caller, shown, whole.over_time, "times")
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
        shown=shown,
        windows=WINDOWS,
        plots=_plots(who.caller, shown, whole.over_time),
        types=[row for row in look.journal.types if shown.has(row["type"])]
        if look.journal is not None
        else [],
        times=plots.latest_times(times),
        unfinished=_oldest_unfinished(look, running),
        states=_states(look),
        ended=_ended(who.caller, whole.over_time),
    )


def _shown(request: Request) -> TypesShown:
    """What of the plots and of the table of types is asked for. Raises HttpProblem."""
    kind = request.query_params.get("type", "").strip()
    if not may_be_filter(kind):
        raise invalid(f"type: {FILTER_RULE}")
    minutes = request.query_params.get("last", "")
    if minutes and minutes not in map(str, WINDOWS):
        raise invalid(f"last: one of {', '.join(map(str, WINDOWS))} (minutes)")
    return TypesShown(kind, int(minutes or MINUTES))


def _oldest_unfinished(look: Look, running: list[dict[str, Any]]) -> float | None:
    """Seconds since the journal, or an instance, first heard of what has not come to its end."""
    now = datetime.now(UTC)
    since = [moment(row["since"]) for row in running]
    ages = [max(0.0, (now - at).total_seconds()) for at in since if at is not None]
    if look.journal is not None:
        ages += [age for age in (look.summary()["oldest"], look.journal.oldest_open)
                 if age is not None]  # fmt: skip
    return max(ages, default=None)


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


def _own(
    caller: Caller, shown: TypesShown, over_time: OverTime | None, part: Literal["ended", "times"]
) -> list[dict[str, Any]]:
    """Of what went on over time what is the caller's business, asked for, and over."""
    if over_time is None:
        return []
    first, end, _ = _window(shown, over_time)
    rows: list[dict[str, Any]] = getattr(over_time, part)
    return [
        row
        for row in rows
        if caller.may_see(row["type"]) and shown.has(row["type"]) and first <= row["at"] <= end
    ]


def _window(shown: TypesShown, over_time: OverTime) -> tuple[int, int, int]:
    step = over_time.step
    # The minute that is not over yet would look like a fall.
    end = int(time.time()) // step * step - step
    return end - min(shown.minutes, over_time.minutes) * 60 + step, end, step


def _plots(caller: Caller, shown: TypesShown, over_time: OverTime | None) -> list[plots.Plot]:
    if over_time is None:
        return []
    window = _window(shown, over_time)
    ended = _own(caller, shown, over_time, "ended")
    known = _own(caller, shown, over_time, "times")
    partly = over_time.times_minutes
    said = [] if partly >= min(shown.minutes, over_time.minutes) else [
        f"the last {partly} minutes only: too many rows"
    ]  # fmt: skip
    if (kinds := len({row["type"] for row in known})) > plots.MOST_KINDS:
        said.append(f"{plots.MOST_KINDS} of {kinds} types, those of which most ran")
    note = "; ".join(said)
    return [
        plots.plot("Ended a second", plots.throughput(ended, window), window, figure),
        plots.plot("Wait, from the producer to the start", plots.times(known, "wait"), window, age,
                   note),
        plots.plot("Run, from the start of its transaction", plots.times(known, "run"), window, age,
                   note),
    ]  # fmt: skip
