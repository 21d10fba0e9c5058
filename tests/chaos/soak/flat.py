"""Whether what processes hold stays as it is, from looks at them over a whole run. Pure.

A process that lives through the second half of the run is judged by its own points: a robust line
through that half may not rise by more than is allowed, and no point of it may lie above a ceiling
over the level of the early calm (the first half without its beginning, in which caches fill).

A worker that is replaced after so many requests rises and falls. There the line goes through the
levels at which those of the second half ended, one point a life: what the machine keeps from one
life to the next, or a life that takes more than the one before it, shows there.

Instances that join for a moment are set apart: of them only what they leave behind is judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.chaos.real.resources import Held, Sample
from tests.chaos.soak.lines import Point, level, slope


class Rule(NamedTuple):
    """What still counts as flat."""

    share: float
    """Of the early level: what a line may rise by in the half."""
    more: float
    """The same in the measure's own unit; the larger of both counts."""
    ceiling: float
    """How far above the early level any point of the second half may lie."""


RULES: dict[str, Rule] = {
    "uss": Rule(0.04, 4.0, 48.0),
    "rss": Rule(0.04, 4.0, 48.0),
    "descriptors": Rule(0.0, 1.0, 24.0),
    "threads": Rule(0.0, 1.0, 8.0),
    "connections": Rule(0.0, 1.0, 6.0),
    "processes": Rule(0.0, 0.5, 3.0),
    "zombies": Rule(0.0, 0.5, 3.0),
}
"""Memory in MiB."""
WARM = 0.15
"""Share of the run in which caches fill."""
LONG_ENOUGH = 600.0
"""Seconds from which on a growth means something."""
LEAST = 3
"""Looks at a life, and lives, below which nothing can be said of them."""


@dataclass(frozen=True)
class Judged:
    """One measure of one process, or of one row of processes."""

    who: str
    what: str
    rule: Rule
    early: float
    """The level of the early calm."""
    rise: float
    """Of the line, from the middle of the run to its end."""
    most: float
    """The highest point of the second half."""
    points: int

    @property
    def allowed(self) -> float:
        return max(self.rule.more, self.rule.share * self.early)

    @property
    def flat(self) -> bool:
        return self.rise <= self.allowed and self.most <= self.early + self.rule.ceiling

    def __str__(self) -> str:
        return (
            f"{self.what} of {self.who}: {self.early:.1f} early, rises by {self.rise:.1f} of"
            f" {self.allowed:.1f} allowed, at most {self.most:.1f}"
        )


def values(held: Held) -> dict[str, float]:
    """All measures of one look at one process."""
    return {
        "uss": held.uss,
        "rss": held.rss,
        "descriptors": held.descriptors,
        "threads": held.threads,
        **{f"{service} connections": n for service, n in held.connections.items()},
    }


def rule_of(what: str) -> Rule:
    return RULES[what.rpartition(" ")[2]]


Lives = Mapping[tuple[int, str, int, int], Sequence[tuple[float, Held]]]


def lives_of(samples: Sequence[Sample]) -> Lives:
    """Looks at each process, by instance, program, pid and birth."""
    found: defaultdict[tuple[int, str, int, int], list[tuple[float, Held]]] = defaultdict(list)
    for sample in samples:
        for held in sample.held:
            found[held.instance, held.program, held.pid, held.born].append((sample.at, held))
    return found


def judged(samples: Sequence[Sample], residents: int, workers: int) -> list[Judged]:
    """All measures of the first `residents` instances, each of which has so many workers."""
    if not samples:
        return []
    span = Span(samples[0].at, samples[-1].at)
    found: list[Judged] = []
    ended: defaultdict[tuple[int, str], list[Sequence[tuple[float, Held]]]] = defaultdict(list)
    number: defaultdict[tuple[int, str], int] = defaultdict(int)
    for (instance, program, _, _), looks in sorted(
        lives_of(samples).items(), key=lambda life: life[1][0][0]
    ):
        if instance >= residents:
            continue
        if not span.lived_through(looks[0][0], looks[-1][0]):
            ended[instance, program].append(looks)
            continue
        number[instance, program] += 1
        who = f"{program} {instance}" + (f".{number[instance, program]}" * (program == "worker"))
        found += span.judge(who, by_measure((at, values(held)) for at, held in looks))
    for (instance, program), rows in ended.items():
        who = f"{len(rows)} replaced {program}s of {instance}"
        if len(rows) >= LEAST:
            found += span.judge(who, by_measure(ends_of(rows)))
    whole = by_measure((sample.at, counts(sample, residents)) for sample in samples)
    return found + span.judge(f"{residents} instances with {workers} workers each", whole)


def counts(sample: Sample, residents: int) -> dict[str, float]:
    return {
        "processes": sum(held.instance < residents for held in sample.held),
        "zombies": sample.zombies,
    }


def ends_of(
    rows: Iterable[Sequence[tuple[float, Held]]],
) -> Iterable[tuple[float, dict[str, float]]]:
    """Birth and levels of the last third of each life that was looked at often enough."""
    for looks in rows:
        if len(looks) >= LEAST:
            last = by_measure((at, values(held)) for at, held in looks[-(len(looks) // 3) :])
            yield looks[0][0], {what: level(points) for what, points in last.items()}


def by_measure(rows: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, list[Point]]:
    found: defaultdict[str, list[Point]] = defaultdict(list)
    for at, some in rows:
        for what, value in some.items():
            found[what].append((at, value))
    return found


@dataclass(frozen=True)
class Span:
    """The time of a run, in seconds since the epoch."""

    begin: float
    end: float

    @property
    def middle(self) -> float:
        return (self.begin + self.end) / 2

    @property
    def half(self) -> float:
        return self.end - self.middle

    def lived_through(self, first: float, last: float) -> bool:
        """Whether a process that was seen from `first` to `last` can be judged by itself."""
        margin = 0.1 * self.half
        return first <= self.middle + margin and last >= self.end - margin

    def judge(self, who: str, measures: Mapping[str, Sequence[Point]]) -> list[Judged]:
        """One for each measure that is ever more than nothing."""
        return [
            self._judge(who, what, points)
            for what, points in measures.items() if any(value for _, value in points)
        ]  # fmt: skip

    def _judge(self, who: str, what: str, points: Sequence[Point]) -> Judged:
        warm = self.begin + WARM * (self.end - self.begin)
        late = [point for point in points if point[0] >= self.middle]
        early = [p for p in points if warm <= p[0] < self.middle] or late
        most = max((value for _, value in late), default=0.0)
        rise = slope(late) * self.half if len(late) >= LEAST else 0.0
        return Judged(who, what, rule_of(what), level(early), rise, most, len(points))


def rising(all_judged: Iterable[Judged]) -> list[str]:
    """Those that are not flat, in words."""
    return [str(one) for one in all_judged if not one.flat]


def line_of(
    samples: Sequence[Sample], began: float, fits: Callable[[Held], bool], what: str
) -> list[Point]:
    """The most that one of those processes holds at each look, over seconds since `began`."""
    return [
        (sample.at - began, max(some))
        for sample in samples
        if (some := [values(held).get(what, 0.0) for held in sample.held if fits(held)])
    ]
