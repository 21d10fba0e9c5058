"""Figures that goals are held to, of results. Each raises KeyError where it was not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from benchmarks.causes import Results
from benchmarks.markdown import rates_of
from benchmarks.spread import Spread, ratio, ratios, spread

Measure = Callable[[Results], Spread]


def rate_ratio(file: str, case: str, ours: str, theirs: str) -> Measure:
    """Of rates, round by round, of a contest."""
    return lambda results: spread(_rate_ratios(results, file, case, ours, theirs))


def cpu_ratio(file: str, case: str, ours: str, theirs: str) -> Measure:
    """Of CPU a request over all processes, of the rounds in which that of both could be told."""

    def measure(results: Results) -> Spread:
        sides = results[file]["found"][case]
        runs = zip(*([run["cpu"] for run in sides[n]] for n in (ours, theirs)), strict=True)
        told = [[sum(cpu.values()) for cpu in pair] for pair in runs if all(pair)]
        return spread([mine / other for mine, other in told])

    return measure


def one_worker(case: str, theirs: str) -> Measure:
    """The ratio to another side with one worker over that with two.

    They are of two runs, whose rounds are no pairs: each is held to each.
    """

    def measure(results: Results) -> Spread:
        one, two = (
            _rate_ratios(results, file, case, "Oncepool", theirs) for file in ("peers-1", "peers-2")
        )
        return spread([a / b for a, b in product(one, two)])

    return measure


def times_ratio(
    file: str, part: str, ours: str, theirs: str, *, plus: str | None = None
) -> Measure:
    """Of milliseconds, round by round; `plus`: what is added to theirs."""

    def measure(results: Results) -> Spread:
        found = results[file]["found"]
        others = [times[part] for times in found[theirs]]
        if plus is not None:
            more = [times["p50"] for times in found[plus]]
            others = [a + b for a, b in zip(others, more, strict=True)]
        return ratio([times[part] for times in found[ours]], others)

    return measure


def journals(ours: str, theirs: str = "empty") -> Measure:
    """Of rates with two journals, round by round."""

    def measure(results: Results) -> Spread:
        found = results["journal_size"]["found"]
        return ratio(*(rates_of(found[name]) for name in (ours, theirs)))

    return measure


def rebalanced(file: str, figure: str) -> Measure:
    """Of stretches with rebalances and without, of KIP-848."""
    return lambda results: Spread(**results[file]["protocols"]["KIP-848"]["ratio"][figure])


def backlog_rate(results: Results) -> Spread:
    """The rate of the last third over that of the first."""
    return spread([one["rates"][-1] / one["rates"][0] for one in _backlogs(results)])


def backlog_memory(results: Results) -> Spread:
    """The same of memory, of the process that grew most."""
    return spread(
        [
            max(row[-1] / row[0] for row in one["memory"].values() if row[0] and row[-1])
            for one in _backlogs(results)
        ]
    )


def waiting(handler: str, side: str) -> Measure:
    """Of rates beside a queue, and with an empty one."""

    def measure(results: Results) -> Spread:
        rates = results["waiting"]["requests_per_second"][handler]
        return ratio(rates[side], rates["empty queue"])

    return measure


def _backlogs(results: Results) -> list[Mapping[str, Any]]:
    return list(results["backlog"]["found"]["Oncepool"])


def _rate_ratios(results: Results, file: str, case: str, ours: str, theirs: str) -> list[float]:
    sides = results[file]["found"][case]
    return ratios(*(rates_of(sides[name]) for name in (ours, theirs)))
