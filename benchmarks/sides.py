"""Sides that take turns with the same handlers, and how their rates are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cpu import PARTS, medians
from benchmarks.full_path_runs import ROOT, RunNames, place
from benchmarks.machine import Machine
from benchmarks.measured import Measured
from benchmarks.report import RESULTS, print_table, say, write_json
from benchmarks.spread import Spread, in_turns, spread
from stack import Stack


@dataclass(frozen=True, slots=True)
class Side:
    """One design, or one way for requests to come."""

    name: str
    run: Callable[[RunNames, str, int], Measured]
    """(place, handler, requests) -> its rate, and what CPU a request took."""
    count: int
    """Requests of one run: so many that start-up is past, so few that a round stays short."""
    tree: Path = ROOT
    """The files that Oncepool runs from."""


Found = dict[str, dict[str, list[Measured]]]
"""Handler -> side -> a run for each round."""
Rates = dict[str, dict[str, list[float]]]
"""Handler -> side -> requests a second, a value per round."""


def measure(
    stack: Stack, handlers: Mapping[str, str], sides: Sequence[Side], workers: int, rounds: int
) -> Found:
    """All sides with all handlers (type -> name for people), in turns."""
    runs: Found = {handler: {side.name: [] for side in sides} for handler in handlers}
    for handler, name in handlers.items():
        for number, side in in_turns(sides, rounds):
            with place(stack, workers, side.tree) as where:
                found = side.run(where, handler, side.count)
            runs[handler][side.name].append(found)
            what = f"{name}, round {number + 1} of {rounds}, {side.name}"
            say(f"{what}: {found.rate:,.0f} requests/s")
    return runs


def rates_of(found: Found) -> Rates:
    """What they did a second."""
    return {
        handler: {side: [run.rate for run in runs] for side, runs in sides.items()}
        for handler, sides in found.items()
    }


def cpu_of(found: Found) -> dict[str, dict[str, list[Mapping[str, float]]]]:
    """Handler -> side -> microseconds a request, part by part, a value per round."""
    return {
        handler: {side: [run.cpu for run in runs] for side, runs in sides.items()}
        for handler, sides in found.items()
    }


def tell_rates(rates: Rates, handlers: Mapping[str, str], what: str, caption: str) -> None:
    """Prints the table of what they did a second."""
    print_table(
        f"Requests a second, {what}",
        ("handler", *next(iter(rates.values()))),
        [
            (name, *(spread(values).median for values in rates[key].values()))
            for key, name in handlers.items()
        ],
        caption,
    )


def tell_cpu(found: Found, handlers: Mapping[str, str]) -> None:
    """Prints the table of what a request costs each process."""
    print_table(
        "CPU microseconds for each request, medians",
        ("handler, side", *PARTS, "all"),
        [
            (f"{name}, {side}", *medians(runs).values())
            for handler, name in handlers.items()
            for side, runs in cpu_of(found)[handler].items()
        ],
        "- where too little was used to be told",
    )


def with_aim(found: Spread, aim: float | None) -> str:
    """A ratio, and whether it is what it should be."""
    if aim is None:
        return str(found)
    return f"{found}, {aim:g}: {'reached' if found.median >= aim else 'missed'}"


def keep(
    name: str,
    title: str,
    machine: Machine,
    results: Mapping[str, Any],
    found: Found,
    handlers: Mapping[str, str],
) -> None:
    """Writes a whole run down, with its rates and CPU beside the other results, and draws it."""
    from benchmarks.plot import bars  # takes a second that a quick run saves

    rates = rates_of(found)
    document = {**results, "requests_per_second": rates, "cpu": cpu_of(found)}
    say(f"written: {_shown(write_json(name, machine, document))}")
    path = RESULTS / f"{name}.svg"
    groups = {
        handler: {side: spread(values) for side, values in rates[key].items()}
        for key, handler in handlers.items()
    }
    bars(path, title, "requests/s", groups)
    say(f"drawn: {_shown(path)}")


def _shown(path: Path) -> str:
    return str(path.relative_to(RESULTS.parents[1]))
