"""Why a goal is missed, said by the figures that stand beside it. Pure: results in, words out.

Nothing here knows a figure: what a process spends more than that of another side, how many cores
were at work, how many milliseconds are over. What is said beside the figures is how the two sides
differ, and stands there only where there is something that it could be the reason for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.cpu import medians
from benchmarks.markdown import median_of
from benchmarks.report import shown

Results = Mapping[str, Any]
Runs = Callable[[Results], Sequence[Mapping[str, Any]]]
"""The runs of one side."""
Cause = Callable[[Results], str]
"""Raises KeyError or ValueError where it was not measured."""

OWN = "main and workers"
"""The processes that are not services: of a side without workers, all of its own."""
SERVICES = ("PostgreSQL", "Valkey", "broker")
LEAST = 0.05
"""Microseconds of a difference that are told."""


def side_of(file: str, case: str, side: str) -> Runs:
    """Of a contest."""
    return lambda results: results[file]["found"][case][side]


def journal_of(side: str) -> Runs:
    """Of the benchmark of journals."""
    return lambda results: results["journal_size"]["found"][side]


def waiting_of(handler: str, side: str) -> Runs:
    """Of the benchmark of the waiting queue, which keeps rates and CPU apart."""

    def runs(results: Results) -> list[dict[str, Any]]:
        kept = results["waiting"]
        rates, costs = (kept[what][handler][side] for what in ("requests_per_second", "cpu"))
        return [{"rate": rate, "cpu": cpu} for rate, cpu in zip(rates, costs, strict=True)]

    return runs


def spent(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Group of processes -> microseconds for each, medians; raises ValueError where none told."""
    found = medians_of(runs)
    own = found["main"] + found["worker"] + found["maintenance"]
    return {OWN: own, **{part: found[part] for part in SERVICES}, "all": found["all"]}


def apart(ours: Runs, theirs: Runs, *, notes: Mapping[str, str] | None = None) -> Cause:
    """What a request costs here and there, by group of processes.

    `notes`: group -> how the sides differ there, told where ours spends more in it.
    """

    def words(results: Results) -> str:
        mine, others = spent(ours(results)), spent(theirs(results))
        differences = {part: mine[part] - others[part] for part in (OWN, *SERVICES)}
        parts = [
            _difference(part, mine[part], others[part], (notes or {}).get(part, ""))
            for part in sorted(differences, key=lambda name: -differences[name])
            if abs(differences[part]) >= LEAST
        ]
        cores = _cores((ours(results), mine["all"]), (theirs(results), others["all"]))
        return (
            f"{shown(mine['all'])} us of CPU for each against {shown(others['all'])}: "
            f"{', '.join(parts) or 'the same in all processes'}; {cores}"
        )

    return words


def beside_before(ours: Runs, before: Runs, share: float) -> Cause:
    """As `apart`, and what the goal leaves: so much of what was spent before."""

    def words(results: Results) -> str:
        mine, others = spent(ours(results)), spent(before(results))
        services = sum(mine[part] for part in SERVICES)
        return (
            f"{apart(ours, before)(results)}. With as many cores at work the goal leaves "
            f"{shown(share * others['all'])} us in all, of which PostgreSQL, Valkey and the broker "
            f"have {shown(services)} already"
        )

    return words


def beyond_work(ours: Runs, bare: Runs) -> Cause:
    """What handlers that compute do not get: by process, over what bare processes spend."""

    def words(results: Results) -> str:
        mine, work = medians_of(ours(results)), medians_of(bare(results))
        more = {
            "workers beside the work itself": mine["worker"] - work["main"],
            **{p: mine[p] - work[p] for p in (*SERVICES, "maintenance")}, "main": mine["main"],
        }  # fmt: skip
        parts = [
            f"{name} {shown(value)}" for name, value in sorted(more.items(), key=lambda p: -p[1])
            if value >= LEAST
        ]  # fmt: skip
        total = shown(mine["all"] - work["all"])
        cores = _cores((ours(results), mine["all"]), (bare(results), work["all"]))
        return f"{total} us of CPU more than the work of each: {', '.join(parts)}; {cores}"

    return words


def of_status(with_status: Runs, without: Runs) -> Cause:
    """What a status costs: what the same handler costs with it and without."""

    def words(results: Results) -> str:
        told, untold = medians_of(with_status(results)), medians_of(without(results))
        status = told["all"] - untold["all"]
        valkey, worker = (told[part] - untold[part] for part in ("Valkey", "worker"))
        return (
            f"the status of each is {shown(status)} of {shown(told['all'])} us: worker "
            f"{shown(worker)}, Valkey {shown(valkey)}, all else {shown(status - worker - valkey)}"
        )

    return words


def one_and_two(case: str, theirs: str) -> Cause:
    """What a request costs with one worker, and with two."""
    sides = [
        apart(side_of(file, case, "Oncepool"), side_of(file, case, theirs))
        for file in ("peers-1", "peers-2")
    ]
    return lambda results: f"with one worker {sides[0](results)}; with two {sides[1](results)}"


def medians_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Part -> microseconds for each; raises ValueError where no run could tell."""
    found = medians([run["cpu"] for run in runs])
    if found["all"] is None:
        raise ValueError("no run could tell its CPU")
    return {part: cost or 0.0 for part, cost in found.items()}


def idle_over(part: str, theirs: str, *, plus: str | None = None) -> Cause:
    """Milliseconds over what others take, and where they go by step, where that was measured."""

    def words(results: Results) -> str:
        found = results["latency"]["found"]
        mine, other = (median_of(found[side], part) for side in ("Oncepool, client", theirs))
        more = 0.0 if plus is None else median_of(found[plus], "p50")
        against = shown(other) if plus is None else f"{shown(other)} and {shown(more)}"
        lead = f"{shown(mine)} ms against {against}: {shown(mine - other - more)} over"
        rounds = [shown(times[part]) for times in found[theirs]]
        if part == "p99":
            lead += f", where {theirs} itself had {', '.join(rounds)} in its rounds"
        return f"{lead}; {by_step(results['latency'], slow=part == 'p99')}"

    return words


def by_step(document: Mapping[str, Any], *, slow: bool) -> str:
    """The steps of an idle request, the longest first; `slow`: of the slowest of a hundred."""
    steps = document.get("steps")
    if not steps:
        return "by step not measured"
    column = "slow" if slow else "median"
    longest = sorted(steps, key=lambda step: -step[column])
    parts = [f"{step['step']} {shown(step[column])}" for step in longest]
    return f"by step, {'of the slowest of a hundred, ' if slow else ''}ms: {', '.join(parts)}"


def half_load(results: Results) -> str:
    """What one meets beside half of what is kept up with."""
    found = results["latency"]["found"]
    idle, loaded = (found[side] for side in ("Oncepool, client", "Oncepool, client, half load"))
    return (
        f"p50 {shown(median_of(loaded, 'p50'))} ms against {shown(median_of(idle, 'p50'))}: it "
        "meets chunks that others fill, on the cores that the services and who sends them need"
    )


def said(words: str) -> Cause:
    """What differs, where no figure is beside it."""
    return lambda _results: words


def _difference(part: str, mine: float, other: float, note: str) -> str:
    told = note if mine > other and note else ""
    reason = f": {told}" if told else ""
    return f"{part} {mine - other:+.1f} ({shown(mine)} against {shown(other)}{reason})"


def _cores(*sides: tuple[Sequence[Mapping[str, Any]], float]) -> str:
    """How many were at work in the runs of each side, of which each request costs so much."""
    told = [f"{median_of(runs, 'rate') * cost / 1e6:.2f}" for runs, cost in sides]
    return f"cores at work {' against '.join(told)}"
