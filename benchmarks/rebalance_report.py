"""Tables, JSON and drawings of benchmarks/rebalance.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu import PARTS, medians
from benchmarks.machine import Machine
from benchmarks.rebalance_books import ENDS, Books
from benchmarks.rebalance_stretch import BIN, IN_TIME, Stretch
from benchmarks.report import print_table, say, shown, write_json
from benchmarks.spread import Spread, ratio, spread
from benchmarks.stalls import UNDISTURBED

KINDS = ("join", "leave", "kill")
FIGURES = {
    "offered": "offered, requests/s",
    "finished": "finished, requests/s",
    "in_time": f"... within {IN_TIME:g} s of the send",
    "latency_p50": "send to result, s: p50",
    "latency_p99": "... p99",
    "latency_most": "... longest",
    "partition_stall": "longest stall, s: a partition",
    "group_stall": "... the whole group",
    "settling": "last answer after the load, s",
}
RATIOS = ("finished", "in_time")


@dataclass(frozen=True, slots=True)
class ProtocolOutcome:
    """All that was seen with one protocol."""

    protocol: str
    rate: float
    """Requests a second that were sent."""
    stretches: list[Stretch]
    books: Books
    exit_codes: list[int]
    """Of members that were asked to leave; 0 is an orderly end, 3 one that cut something short."""

    def side(self, *, disturbed: bool) -> list[Stretch]:
        """The stretches with, or without, disturbances, in the order of rounds."""
        return [one for one in self.stretches if bool(one.events) == disturbed]

    def spread(self, figure: str, *, disturbed: bool) -> Spread:
        """Of one figure of the stretches of a side."""
        return spread([getattr(one, figure) for one in self.side(disturbed=disturbed)])

    def ratio(self, figure: str) -> Spread:
        """Disturbed over undisturbed, round by round."""
        disturbed, quiet = (
            [getattr(one, figure) for one in self.side(disturbed=side)] for side in (True, False)
        )
        return ratio(disturbed, quiet)

    def count(self, kind: str) -> int:
        """How often that was done to the group."""
        return sum(of == kind for one in self.stretches for _, of in one.events)

    def stalls(self) -> dict[str, Spread]:
        """The longest stall of a partition in each stretch, by what had happened."""
        found = {UNDISTURBED: self.spread("partition_stall", disturbed=False)}
        for kind in KINDS:
            seconds = [o.stalls[kind] for o in self.side(disturbed=True) if kind in o.stalls]
            if seconds:
                found[kind] = spread(seconds)
        return found


def tell(machine: Machine, outcomes: Sequence[ProtocolOutcome]) -> None:
    """Prints the tables."""
    for outcome in outcomes:
        title = f"{outcome.protocol}: median (lowest - highest)"
        print_table(title, ("", UNDISTURBED, "disturbed", "ratio"), _figures(outcome))
    columns = ("", *(outcome.protocol for outcome in outcomes))
    stalls = [outcome.stalls() for outcome in outcomes]
    kinds = [
        (kind, *(_cell(found[kind]) if kind in found else None for found in stalls))
        for kind in (UNDISTURBED, *KINDS)
    ]
    print_table("Longest stall of a partition after ..., s", columns, kinds)
    print_table("Books", columns, _books(outcomes), machine.line)
    print_table(
        "CPU microseconds for each request of undisturbed stretches, medians",
        ("protocol", *PARTS, "all"),
        [
            (o.protocol, *medians([s.cpu for s in o.side(disturbed=False)]).values())
            for o in outcomes
        ],
    )


def write(machine: Machine, outcomes: Sequence[ProtocolOutcome], folder: Path, name: str) -> None:
    """Writes <name>.json and draws <name>.svg."""
    results = {
        outcome.protocol: {
            "ratio": {figure: outcome.ratio(figure) for figure in RATIOS},
            "stalls": outcome.stalls(),
            "outcome": outcome,
        }
        for outcome in outcomes
    }
    rounds = len(outcomes[0].side(disturbed=True))
    document = {"rounds": rounds, "curve_bin_seconds": BIN, "protocols": results}
    say(f"written: {write_json(name, machine, document, folder).name}")
    _draw(outcomes, folder / f"{name}.svg")


def _figures(outcome: ProtocolOutcome) -> list[tuple[object, ...]]:
    return [
        (
            name,
            _cell(outcome.spread(figure, disturbed=False)),
            _cell(outcome.spread(figure, disturbed=True)),
            _cell(outcome.ratio(figure)) if figure in RATIOS else None,
        )
        for figure, name in FIGURES.items()
    ]


def _cell(found: Spread) -> str:
    if found.count == 1:
        return shown(found.median)
    return f"{shown(found.median)} ({shown(found.low)} - {shown(found.high)})"


def _books(outcomes: Sequence[ProtocolOutcome]) -> list[tuple[object, ...]]:
    books = [outcome.books for outcome in outcomes]
    rows: dict[str, list[int]] = {
        "requests": [one.requests for one in books],
        **{f"  first message {end}": [one.first[end] for one in books] for end in ENDS},
        "messages, resends too": [one.messages for one in books],
        "  answered from the journal": [one.from_journal for one in books],
        "  refused": [one.refused for one in books],
        "  lost": [one.lost for one in books],
        "done": [one.done for one in books],
        "run twice": [one.twice for one in books],
        "done without effect, or the reverse": [one.unequal for one in books],
        "unanswered": [one.unanswered for one in books],
        "given up at commit, lost or not": [one.given_up for one in books],
        "members killed": [outcome.count("kill") for outcome in outcomes],
        "members that left": [outcome.count("leave") for outcome in outcomes],
    }
    return [(name, *counts) for name, counts in rows.items()]


def _draw(outcomes: Sequence[ProtocolOutcome], path: Path) -> None:
    from benchmarks.plot import Curve, lines  # takes a second that a quick run saves

    panels = {}
    for outcome in outcomes:
        panels[outcome.protocol] = [
            Curve(name, [number * BIN for number in range(len(one.curve))], one.curve, one.events)
            for name, one in (
                (UNDISTURBED, outcome.side(disturbed=False)[0]),
                ("disturbed", outcome.side(disturbed=True)[0]),
            )
        ]
    lines(path, "A group of three under steady load, first round", "finished requests/s", panels)
