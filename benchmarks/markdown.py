"""Pieces of a page of Markdown: tables, figures of results, links to plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.cpu import PARTS, medians
from benchmarks.report import RESULTS, shown
from benchmarks.spread import spread

NOT_MEASURED = "Not measured."
CPU = "Microseconds of CPU for each request, by process"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return shown(value).replace("|", "\\|")


def plot(name: str) -> str:
    """A link to the drawing of a result; empty where there is none."""
    path = RESULTS / f"{name}.svg"
    return f"![{name}](../benchmarks/results/{name}.svg)" if path.exists() else ""


def cpu_table(what: str, sides: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """CPU by process of each side, medians of its runs, or that it was not measured.

    `what`: what the sides are called.
    """
    found = {side: medians(runs) for side, runs in sides.items()}
    if all(costs["all"] is None for costs in found.values()):
        return f"{CPU}: not measured."
    rows = [(side, *costs.values()) for side, costs in found.items()]
    return f"{CPU}, medians.\n\n{table((what, *PARTS, 'all'), rows)}"


def cpus(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, float]]:
    """What runs say of their CPU; those of old results say nothing."""
    return [run.get("cpu", {}) for run in runs]


def rates_of(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """What each run did a second."""
    return [run["rate"] for run in runs]


def median_of(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    """Of one figure of runs."""
    return spread([run[name] for run in runs]).median
