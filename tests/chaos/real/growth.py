"""Whether processes go on holding more and more, in an episode of some minutes. Pure.

Under faults processes are replaced and connections are made anew, so each one is judged by its own
life: by the level of its last quarter, against the most that it held for some time in its first
half. A short life says nothing. How many were judged is said, so that nobody takes nothing for
flat. scripts/soak asks the same of half an hour, of processes that live through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.chaos.real.resources import MAIN, PROGRAMS, Held, Sample
from tests.chaos.real.timeline import quantile
from tests.chaos.soak.flat import lives_of, values

WARM = 10.0
"""Seconds of a life that count for nothing: its caches fill."""
LEAST = 24
"""Looks after that, below which a life says nothing."""
MOSTLY = 0.9
"""Quantile of the first half that counts as the most that was held there."""
ALLOWED: dict[str, tuple[float, float]] = {
    "rss": (1.15, 24.0),
    "uss": (1.15, 24.0),
    "descriptors": (1.2, 5),
    "threads": (1.2, 4),
    "connections": (1.2, 2),
}
"""By how much, as a factor and besides, the last quarter may lie above the first half."""
OF_INSTANCE = 2
"""Processes of an instance beside its workers."""


@dataclass
class Growth:
    """What was judged, and what has grown, in words."""

    judged: Counter[str] = field(default_factory=Counter)
    """Processes, by program."""
    too_short: int = 0
    """Processes that did not live long enough."""
    looks: int = 0
    """Looks at the number of processes."""
    found: list[str] = field(default_factory=list)


def growth(samples: Sequence[Sample], workers: int) -> Growth:
    """Judges each process, and how many there are; `workers`: of each instance."""
    result = Growth(judged=Counter(dict.fromkeys((MAIN, *PROGRAMS), 0)))
    for (instance, program, pid, _), looks in lives_of(samples).items():
        settled = [held for at, held in looks if at >= looks[0][0] + WARM]
        if len(settled) < LEAST:
            result.too_short += 1
            continue
        result.judged[program] += 1
        result.found += [
            f"{what} of {program} {pid} of instance {instance}: {said}"
            for what, said in _grown(settled).items()
        ]
    result.found += _left_over(samples, workers, result)
    return result


def _grown(looks: Sequence[Held]) -> dict[str, str]:
    found = {}
    for what in values(looks[0]):
        series = [values(held)[what] for held in looks]
        before = quantile(series[: len(series) // 2], MOSTLY)
        after = median(series[-(len(series) // 4) :])
        factor, more = ALLOWED[what.rpartition(" ")[2]]
        if after > before * factor and after > before + more:
            found[what] = f"{before:.0f}, then {after:.0f}"
    return found


def _left_over(samples: Sequence[Sample], workers: int, result: Growth) -> list[str]:
    """Processes beyond those that instances have, and children that nobody looks after.

    Both come for a moment when something dies: the last quarter mostly has to have none.
    """
    some = [sample for sample in samples if sample.held]
    result.looks = len(some)
    if len(some) < LEAST:
        return []
    last = some[-(len(some) // 4) :]
    beyond = median(
        len(sample.held)
        - (OF_INSTANCE + workers) * sum(held.program == MAIN for held in sample.held)
        for sample in last
    )
    zombies = median(sample.zombies for sample in last)
    found = [f"{beyond:.0f} processes more than instances have"] if beyond > 0 else []
    return found + ([f"{zombies:.0f} zombies"] if zombies > 0 else [])
