"""Drawings of results, by what each of them holds; those of a contest are drawn as it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.page_budget import steps_of
from benchmarks.plot import bars
from benchmarks.spread import Spread, spread

Groups = Mapping[str, Mapping[str, Spread]]
Runs = Sequence[Mapping[str, Any]]


def draw_all(results: Mapping[str, Any], folder: Path) -> list[str]:
    """Draws each result that is known here; returns their names."""
    drawn = [name for name in DRAWN if name in results]
    for name in drawn:
        title, unit, groups_of = DRAWN[name]
        bars(folder / f"{name}.svg", title, unit, groups_of(results[name]))
    return drawn


def _times(document: Mapping[str, Any]) -> Groups:
    return {
        side.replace(", ", ",\n"): {part: _of(runs, part) for part in ("p50", "p99")}
        for side, runs in document["found"].items()
    }


def _rates(document: Mapping[str, Any]) -> Groups:
    """Of cases with sides."""
    return {
        case: {side: _of(runs, "rate") for side, runs in sides.items()}
        for case, sides in document["found"].items()
    }


def _sides(document: Mapping[str, Any]) -> Groups:
    """Of sides alone."""
    return {
        side.replace(", ", ",\n"): {"rate": _of(runs, "rate")}
        for side, runs in document["found"].items()
    }


def _thirds(document: Mapping[str, Any]) -> Groups:
    return {
        third: {
            side: spread([run["rates"][number] for run in runs])
            for side, runs in document["found"].items()
        }
        for number, third in enumerate(("first third", "second third", "last third"))
    }


def _faults(document: Mapping[str, Any]) -> Groups:
    sides = document["found"]
    faults = next(iter(sides.values()))
    return {fault: {side: spread(of[fault]) for side, of in sides.items()} for fault in faults}


def _steps(document: Mapping[str, Any]) -> Groups:
    groups: dict[str, dict[str, Spread]] = {}
    for side, runs in document["found"].items():
        for process in ("main", "worker"):
            for step, microseconds in steps_of([run["steps"] for run in runs], process).items():
                label = f"{process}: {step}".replace(" ", "\n")
                groups.setdefault(label, {})[side] = spread([microseconds])
    return groups


def _of(runs: Runs, name: str) -> Spread:
    return spread([run[name] for run in runs])


DRAWN: dict[str, tuple[str, str, Callable[[Mapping[str, Any]], Groups]]] = {
    "backlog": ("A backlog, by thirds of it", "requests/s", _thirds),
    "beside": ("A quick type beside a slow one", "ms", _times),
    "budget": ("Where a request's time goes", "us of CPU for each", _steps),
    "client": ("All sent at once, then waited for", "answers/s", _sides),
    "gateway": ("The HTTP gateway", "calls/s", _rates),
    "journal_size": ("Journals of several sizes", "requests/s", _sides),
    "latency": ("Latency of one request", "ms", _times),
    "recovery": ("After a kill", "seconds until answered", _faults),
    "scale": ("Instances x workers on the same cores", "requests/s", _rates),
}
"""Result -> title, unit, and what is drawn of it."""
