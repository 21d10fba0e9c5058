"""What a soak has to show, and what of it does not hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.real.pauses import Pause
from tests.chaos.real.resources import MAIN, Sample
from tests.chaos.real.timeline import quantile
from tests.chaos.soak.flat import LONG_ENOUGH, Judged, judged, lives_of, rising
from tests.chaos.soak.vigil import Orphans, SessionsSeen

ORPHANED = 5.0
"""Seconds that a child may outlive its main process."""
IDLE_LIMIT = 15.0
"""Seconds that a transaction may do nothing: its handler's six, what an outage of a few seconds
holds up, and some for a machine that others use. The server itself would end it a minute later."""
PAUSE_LIMIT = 0.020
"""Seconds of work that a full collection may cost a main process."""
LEAST_PAUSES = 10


@dataclass
class Seen:
    """What was looked at in a soak, beside its books."""

    samples: Sequence[Sample]
    """Of the time under load."""
    residents: int
    """Instances that are there from begin to end; others come and go."""
    workers: int
    orphans: Orphans
    killed: int
    """Main processes that were killed."""
    sessions: Sequence[SessionsSeen]
    pauses: Sequence[Pause]
    unanswered: int = 0
    """Looks that the database did not answer."""

    @property
    def seconds(self) -> float:
        return self.samples[-1].at - self.samples[0].at if self.samples else 0.0

    @property
    def judged(self) -> list[Judged]:
        return judged(self.samples, self.residents, self.workers)


def troubles(seen: Seen) -> dict[str, list[str]]:
    """What does not hold, by rule."""
    found = {
        "what processes hold is flat": growths(seen),
        "no process outlives its main process": seen.orphans.beyond(ORPHANED),
        "no transaction is left open": open_transactions(seen.sessions),
        "full collections are short": long_pauses(seen.pauses),
    }
    return {rule: lines for rule, lines in found.items() if lines}


def growths(seen: Seen) -> list[str]:
    """What rises; nothing is said of a run that is too short for it."""
    if seen.seconds < LONG_ENOUGH:
        return []
    all_judged = seen.judged
    who = {one.who for one in all_judged}
    missing = [
        f"{program} {instance} did not live through the second half"
        for instance in range(seen.residents)
        for program in (MAIN, "maintenance")
        if f"{program} {instance}" not in who
    ]
    return missing + rising(all_judged)


def open_transactions(sessions: Sequence[SessionsSeen]) -> list[str]:
    if not sessions:
        return ["the database was never asked"]
    return [f"{one.who}: {one.idle:.1f} s" for one in sessions if one.idle > IDLE_LIMIT]


def long_pauses(pauses: Sequence[Pause]) -> list[str]:
    if len(pauses) < LEAST_PAUSES:
        return [f"only {len(pauses)} collections were seen"]
    return [
        f"{pause.cpu * 1e3:.1f} ms of work ({pause.took * 1e3:.1f} ms by the clock) in process"
        f" {pause.pid}" for pause in pauses if pause.cpu >= PAUSE_LIMIT
    ]  # fmt: skip


def figures_of(seen: Seen) -> dict[str, Any]:
    """The same in numbers."""
    lives = lives_of(seen.samples)
    own = [key for key in lives if key[0] < seen.residents]
    cpu = [pause.cpu * 1e3 for pause in seen.pauses]
    took = [pause.took * 1e3 for pause in seen.pauses]
    return {
        "looks at processes": len(seen.samples),
        "processes looked at": len(lives),
        "workers of residents": sum(program == "worker" for _, program, *_ in own),
        "instances that came and went": len({key[0] for key in lives} - {key[0] for key in own}),
        "main processes killed": seen.killed,
        "children that outlived their main process": len(seen.orphans.longest),
        "longest of these, s": round(max(seen.orphans.longest.values(), default=0.0), 1),
        "looks at the database": len(seen.sessions),
        "looks that it did not answer": seen.unanswered,
        "most sessions": max((one.sessions for one in seen.sessions), default=0),
        "longest idle transaction, s": round(max((s.idle for s in seen.sessions), default=0.0), 2),
        "full collections in main processes": len(seen.pauses),
        "of work p50, p99, most, ms": [round(v, 2) for v in _three(cpu)],
        "by the clock p50, p99, most, ms": [round(v, 2) for v in _three(took)],
        "judged flat": sum(one.flat for one in seen.judged),
        "judged rising": sum(not one.flat for one in seen.judged),
    }


def _three(numbers: Sequence[float]) -> tuple[float, float, float]:
    return quantile(numbers, 0.5), quantile(numbers, 0.99), max(numbers, default=0.0)


def as_rows(all_judged: Sequence[Judged]) -> list[Mapping[str, Any]]:
    """For the file of figures."""
    return [
        {
            "who": one.who, "what": one.what, "early": round(one.early, 2),
            "rise": round(one.rise, 2), "allowed": round(one.allowed, 2),
            "most": round(one.most, 2), "ceiling": round(one.early + one.rule.ceiling, 2),
            "points": one.points, "flat": one.flat,
        }
        for one in all_judged
    ]  # fmt: skip
