"""The page's section on where a request's time goes, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cpu import PARTS
from benchmarks.markdown import plot, table
from benchmarks.spread import spread

MOST = 12
"""Functions that are told of a process."""
ABOUT = """Microseconds of CPU for each request of a no-op handler with a row and a status, two
workers, all requests there. The processes say for themselves where they are: every few milliseconds
of CPU that the main thread has used it notes which function of Oncepool's it is in, and its share
of these notes is its share of that thread's CPU. What a library does for a function (psycopg,
libpq, orjson, redis-py, confluent-kafka) is that function's. Threads beside the main one stand with
their names; what is none of Python's are the threads of librdkafka. Medians of the rounds."""


def budget(document: Mapping[str, Any]) -> Iterator[str]:
    """A table a process, before and after where both were measured."""
    found = document["found"]
    sides = sorted(found, key=lambda side: side == "Oncepool")  # what was before comes first
    yield ABOUT
    yield "**All processes**"
    parts = [part for part in PARTS if any(_cpu(found[side], part) is not None for side in sides)]
    yield _compared("process", sides, {
        **{part: [_cpu(found[side], part) for side in sides] for part in parts},
        "all": [_whole(found[side]) for side in sides],
    })  # fmt: skip
    for process in ("main", "worker"):
        steps = [steps_of([run["steps"] for run in found[side]], process) for side in sides]
        names = dict.fromkeys(name for one in reversed(steps) for name in one)
        yield f"**{process}**"
        yield _compared("step", sides, {n: [one.get(n) for one in steps] for n in names})
        yield from _profile(found["Oncepool"], process)
    yield plot("budget")


def _profile(runs: Sequence[Mapping[str, Any]], process: str) -> Iterator[str]:
    """The functions that take most of a process's CPU."""
    if functions := steps_of([run.get("functions", {}) for run in runs], process):
        yield f"The {MOST} functions of it in which most is spent:"
        yield table(("function", "us"), list(functions.items())[:MOST])


def steps_of(rounds: Sequence[Mapping[str, Mapping[str, float]]], process: str) -> dict[str, float]:
    """Step -> microseconds for each request, the longest first: medians of the rounds.

    `rounds`: of each what its processes told, by step.
    """
    told = [steps for one in rounds if (steps := one.get(process))]
    names = {name for one in told for name in one}
    found = {name: spread([one.get(name, 0.0) for one in told]).median for name in names}
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _cpu(runs: Sequence[Mapping[str, Any]], part: str) -> float | None:
    told = [run["cpu"].get(part, 0.0) for run in runs if run["cpu"]]
    return spread(told).median if told else None


def _whole(runs: Sequence[Mapping[str, Any]]) -> float | None:
    told = [sum(run["cpu"].values()) for run in runs if run["cpu"]]
    return spread(told).median if told else None


def _compared(
    what: str, sides: Sequence[str], rows: Mapping[str, Sequence[float | None]]
) -> str:  # fmt: skip
    """With the difference where there are two sides."""
    more = ("more",) if len(sides) == 2 else ()
    return table((what, *sides, *more), [(name, *row, *_more(row)) for name, row in rows.items()])


def _more(row: Sequence[float | None]) -> tuple[str, ...]:
    if len(row) != 2:
        return ()
    before, after = row
    return (f"{(after or 0.0) - (before or 0.0):+.2f}",)
