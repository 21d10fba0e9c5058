"""Sides that take turns with the same handlers, and how their rates are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.full_path_runs import ROOT, RunNames, place
from benchmarks.machine import Machine
from benchmarks.report import RESULTS, say, write_json
from benchmarks.spread import Spread, in_turns, spread
from stack import Stack


@dataclass(frozen=True, slots=True)
class Side:
    """One design, or one way for requests to come."""

    name: str
    run: Callable[[RunNames, str, int], float]
    """(place, handler, requests) -> requests a second."""
    count: int
    """Requests of one run: so many that start-up is past, so few that a round stays short."""
    tree: Path = ROOT
    """The files that Oncepool runs from."""


Rates = dict[str, dict[str, list[float]]]
"""Handler -> side -> requests a second, a value per round."""


def measure(
    stack: Stack, handlers: Mapping[str, str], sides: Sequence[Side], workers: int, rounds: int
) -> Rates:
    """All sides with all handlers (type -> name for people), in turns."""
    rates: Rates = {handler: {side.name: [] for side in sides} for handler in handlers}
    for handler, name in handlers.items():
        for number, side in in_turns(sides, rounds):
            with place(stack, workers, side.tree) as where:
                found = side.run(where, handler, side.count)
            rates[handler][side.name].append(found)
            say(f"{name}, round {number + 1} of {rounds}, {side.name}: {found:,.0f} requests/s")
    return rates


def speeds_of(rates: Rates) -> dict[str, dict[str, Spread]]:
    """Handler -> side -> where its rates lie."""
    return {
        handler: {side: spread(values) for side, values in sides.items()}
        for handler, sides in rates.items()
    }


def with_aim(found: Spread, aim: float | None) -> str:
    """A ratio, and whether it is what it should be."""
    if aim is None:
        return str(found)
    return f"{found}, {aim:g}: {'reached' if found.median >= aim else 'missed'}"


def keep(
    name: str, title: str, machine: Machine, results: dict[str, Any], groups: Mapping[str, Any]
) -> None:
    """Writes a whole run down and draws it; `groups` maps a handler's name to its sides' rates."""
    from benchmarks.plot import bars  # takes a second that a quick run saves

    say(f"written: {_shown(write_json(name, machine, results))}")
    path = RESULTS / f"{name}.svg"
    bars(path, title, "requests/s", groups)
    say(f"drawn: {_shown(path)}")


def _shown(path: Path) -> str:
    return str(path.relative_to(RESULTS.parents[1]))
