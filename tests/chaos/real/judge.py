"""The verdict on an episode: what of it does not hold, and its figures in lines for people."""

from __future__ import annotations

from tests.chaos.real.checks import CHECKS
from tests.chaos.real.episode import Outcome
from tests.chaos.real.growth import growth
from tests.chaos.real.report import figures

SHOWN = 12
GOOD = "nothing lost, nothing twice, all explained"


def problems(outcome: Outcome) -> dict[str, list[str]]:
    """What does not hold, by check."""
    held = growth(outcome.samples, outcome.plan.workers)
    found = {**broken(outcome), "resources stay as they are": held.found}
    return {name: lines for name, lines in found.items() if lines}


def broken(outcome: Outcome) -> dict[str, list[str]]:
    """Invariants that do not hold, with what breaks them."""
    found = {name: check(outcome.facts) for name, check in CHECKS.items()}
    found["every request is answered"] = outcome.unanswered
    return {name: lines for name, lines in found.items() if lines}


def tell(outcome: Outcome) -> list[str]:
    """The figures of the report, of this episode alone."""
    plan, seconds = outcome.plan, outcome.ended - outcome.began
    title = f"{plan.name}: {plan.protocol}, ordering {plan.ordering}, {seconds:.0f} s"
    return [title, *(f"  {name}: {figure}" for name, figure in figures([outcome], {}).items())]


def tell_problems(found: dict[str, list[str]]) -> list[str]:
    """The same of what does not hold, the first of each."""
    lines = []
    for name, some in found.items():
        lines += [f"  PROBLEM {name}: {len(some)}", *(f"    {line}" for line in some[:SHOWN])]
    return lines


def verdict_of(found: int) -> str:
    return f"{found} problems" if found else GOOD
