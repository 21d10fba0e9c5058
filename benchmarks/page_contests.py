"""The page's sections on sides that do the same work, and what is left to gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.causes import Results, medians_of
from benchmarks.cpu import PARTS, medians
from benchmarks.markdown import NOT_MEASURED, plot, rates_of, table
from benchmarks.spread import ratio, spread

CONTESTS = {
    "peers-2": "Beside other consumers, two workers",
    "peers-1": "Beside other consumers, one worker",
    "handoff-2": "Hand-off without a row",
    "cpu_bound-2": "Handlers that compute",
    "io_bound-8": "Handlers that wait, eight workers",
}
LIMIT, LOOPS = "bare limit", "bare loops, by batches"
SET_UP = {
    "peers": "#peers",
    "handoff": "#handoff-cpu_bound-io_bound-beside-journal_size-backlog",
}
"""Where the settings of a contest's sides are told."""
LEFT_OUT = "This run has left the other frameworks out (`--own`)."
ALIKE_SINCE = "2026-11-28T15:30"
"""When the bare limit began to write rows and statuses as Oncepool does."""
UNLIKE = (
    "The bare limit of this run is an older one: it sends a script call for each status where "
    "Oncepool sets a hundred at once, and makes its rows by psycopg's adapters."
)
FLOOR = """What each process would spend on a request if nothing were done but what any design has
to do: PostgreSQL, Valkey and the Python that sends them the same statements and commands in the
same chunks (the bare limit's), the broker and librdkafka with a loop of Python that takes batches
and looks at headers (of the hand-off's bare loops). Nothing in it is parsed, fingerprinted, handed
to another process, or committed before it runs. What Oncepool spends more is left to gain."""


def contest(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    """One contest: a table a case, and its plot."""
    for case, sides in document["found"].items():
        ours = rates_of(sides["Oncepool"])
        rows = []
        for side, runs in sides.items():
            cpu = medians([run["cpu"] for run in runs])
            rates = rates_of(runs)
            rows.append((side, spread(rates).median, ratio(ours, rates), *cpu.values()))
        yield f"**{case}**: {document['unit']} a second, and microseconds of CPU for each"
        yield table(("side", "rate", "Oncepool / it", *PARTS, "all"), rows)
    if (benchmark := name.partition("-")[0]) in SET_UP:
        where = f"[{benchmark}](../benchmarks/README.md{SET_UP[benchmark]})"
        yield f"How each side is set up, and by which page: {where}.{_left_out(document)}"
    yield from _limit_then(document)
    yield plot(name)


def _left_out(document: Mapping[str, Any]) -> str:
    return "" if document.get("frameworks") else f" {LEFT_OUT}"


def _limit_then(document: Mapping[str, Any]) -> Iterator[str]:
    has_limit = any(LIMIT in sides for sides in document["found"].values())
    if has_limit and document["machine"]["date"] < ALIKE_SINCE:
        yield UNLIKE


def floor(results: Results) -> Iterator[str]:
    """The sum of CPU that any design needs, a line a case."""
    yield "## What any design needs"
    try:
        loop = medians_of(results["handoff-2"]["found"]["no-op"][LOOPS])
        cases = results["peers-2"]["found"]
        rows = [_floor_row(case, sides, loop) for case, sides in cases.items()]
    except (KeyError, ValueError):
        yield NOT_MEASURED
        return
    yield FLOOR
    yield from _limit_then(results["peers-2"])
    yield table(
        ("case, us of CPU for each", "PostgreSQL", "Valkey", "broker", "librdkafka and a loop",
         "statements and statuses in Python", "sum", "Oncepool", "Oncepool / sum"),
        rows,
    )  # fmt: skip


def _floor_row(
    case: str, sides: Mapping[str, Any], loop: Mapping[str, float]
) -> tuple[object, ...]:
    limit, ours = medians_of(sides[LIMIT]), medians_of(sides["Oncepool"])["all"]
    parts = (limit["PostgreSQL"], limit["Valkey"], loop["broker"], loop["main"], limit["main"])
    total = sum(parts)
    return (case, *parts, total, ours, f"{ours / total:.2f}")
