"""The page of a soak: what was judged, and plots of what processes held. Pure; needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from tests.chaos.real.episode import Outcome
from tests.chaos.real.plots import plot
from tests.chaos.real.report import document, figure_tables, load_plots, table, windows_of
from tests.chaos.real.resources import MAIN, PROGRAMS, Held
from tests.chaos.soak.flat import Judged, line_of
from tests.chaos.soak.lines import Point
from tests.chaos.soak.verdict import Seen, troubles

MEASURES = (
    ("uss", "memory of its own", "MiB"),
    ("rss", "resident memory", "MiB"),
    ("descriptors", "descriptors", ""),
    ("threads", "threads", ""),
    ("postgres connections", "connections to PostgreSQL", ""),
    ("valkey connections", "connections to Valkey", ""),
    ("kafka connections", "connections to Kafka", ""),
)
ABOUT_PLOTS = (
    "Of each program of each resident, the most that one process held. Workers of instance 0 are"
    " replaced after a number of requests."
)


def page(outcome: Outcome, seen: Seen, told: Mapping[str, Any]) -> str:
    """`told`: the figures, as they stand in the file beside it."""
    parts = [
        *figure_tables([outcome], told),
        "<h2>What was judged</h2>", judged_table(seen.judged),
        "<h2>Load</h2><p><small>Faults are shaded.</small></p>", *load_plots(outcome),
        f"<h2>What processes held</h2><p><small>{ABOUT_PLOTS}</small></p>",
        *held_plots(outcome, seen), *other_plots(outcome, seen),
    ]  # fmt: skip
    title = ("Soak", f"Soak, seed {told['seed']}")
    good = not troubles(seen) and "problem" not in str(told["verdict"])
    return document(title, str(told["verdict"]), parts, good=good)


def judged_table(all_judged: list[Judged]) -> str:
    rows = [
        (escape(one.who), escape(one.what), f"{one.early:.1f}", f"{one.rise:+.2f}",
         f"{one.allowed:.1f}", f"{one.most:.1f}", f"{one.early + one.rule.ceiling:.1f}",
         "flat" if one.flat else "<b class=bad>rises</b>")
        for one in sorted(all_judged, key=lambda one: (one.what, one.who))
    ]  # fmt: skip
    head = ("of", "measure", "early level", "rise of the second half", "allowed", "most in it",
            "ceiling", "")  # fmt: skip
    return table(head, rows)


def held_plots(outcome: Outcome, seen: Seen) -> list[str]:
    """One for each measure and program, with a line for each resident."""
    windows, found = windows_of(outcome), []
    for what, words, unit in MEASURES:
        for program in (MAIN, *PROGRAMS):
            lines: dict[str, list[Point]] = {}
            for instance in range(seen.residents):

                def fits(held: Held, number: int = instance, kind: str = program) -> bool:
                    return held.instance == number and held.program == kind

                lines[f"{program} {instance}"] = line_of(seen.samples, outcome.began, fits, what)
            if any(value for points in lines.values() for _, value in points):
                found.append(plot(f"{words}, {program}", lines, windows, unit=unit))
    return found


def other_plots(outcome: Outcome, seen: Seen) -> list[str]:
    began, windows = outcome.began, windows_of(outcome)
    at_work = [(s.at - began, float(len(s.held))) for s in seen.samples]
    open_ = [(one.at - began, one.idle) for one in seen.sessions if one.at >= began]
    sessions = [(one.at - began, float(one.sessions)) for one in seen.sessions if one.at >= began]
    pauses = [(one.at - began, one.cpu * 1e3) for one in seen.pauses if one.at >= began]
    return [
        plot("processes, visitors too", {"processes": at_work}, windows),
        plot("database sessions, visitors' too", {"sessions": sessions}, windows),
        plot("the longest idle transaction", {"idle": open_}, windows, unit="s"),
        plot("full collections in main processes", {"work": sorted(pauses)}, windows, unit="ms"),
    ]
