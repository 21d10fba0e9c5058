"""A benchmark whose sides are contenders: its options, its rounds, its tables."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.contenders import Contender, present
from benchmarks.cpu import PARTS, medians
from benchmarks.frameworks_environment import version_of
from benchmarks.full_path_runs import place
from benchmarks.machine import Machine, facts
from benchmarks.measured import Measured
from benchmarks.options import options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio, spread
from stack import Stack

PACKAGES = {"FastStream": "faststream", "arroyo": "sentry-arroyo", "DBOS": "dbos"}

Found = dict[str, dict[str, list[Measured]]]
"""Case -> side -> a run for each round."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of work."""

    handler: str
    """The type of its requests."""
    count: int
    """Requests of a run."""


FRAMEWORK_TRIES = 3
"""Runs of a framework that may fail before the benchmark does."""


@dataclass(frozen=True, slots=True)
class Contest:
    """One question."""

    name: str
    about: str
    """The benchmark's docstring."""
    cases: Mapping[str, Case]
    """Name -> what is done."""
    sides: Sequence[Contender]
    """The first is the one that the others are held to."""
    rounds: int = 5
    workers: int = 2
    unit: str = "requests"

    def main(self) -> None:
        """The command line."""
        options = self._options()
        rounds = rounds_of(options, self.rounds)
        sides = present([side for side in self.sides if not (options.own and side.framework)])
        named = {n: p for n, p in PACKAGES.items() if any(n in s.name for s in sides)}
        versions = {name: version_of(package) for name, package in named.items()}
        with other_tree(options.against) as tree, services() as local:
            if tree is not None:
                sides.append(replace(sides[0], name=options.against, tree=tree))
            machine = facts(local)
            self._warm_up(local, options)
            found: Found = {}
            for name in options.case or self.cases:
                case = self._sized(self.cases[name], options)
                having = [s for s in sides if not s.handlers or case.handler in s.handlers]
                found[name] = self._runs(local, case, having, options.workers, rounds)
                self._tell(name, found[name], machine, versions)
        if options.whole:
            self._keep(machine, found, options.workers, rounds, versions)
        first, second = (side.name for side in sides[:2])
        ratios = [f"{name} {_ratio(one, first, second)}" for name, one in found.items()]
        say(f"{self.name}: {first} / {second}: {'; '.join(ratios)}")

    def _options(self) -> argparse.Namespace:
        parser = parser_of(self.about, "one round, a third of the work", self.rounds)
        parser.add_argument("--scale", type=float, help="of the work of a run (default: 1)")
        parser.add_argument("--workers", type=int, default=self.workers, help="worker processes")
        parser.add_argument("--case", choices=self.cases, action="append", help="only this one")
        parser.add_argument("--own", action="store_true", help="no other frameworks")
        add_option(parser)
        return options_of(parser, "workers")

    def _sized(self, case: Case, options: argparse.Namespace) -> Case:
        scale = options.scale or (1 / 3 if options.quick else 1)
        return replace(case, count=max(1, int(case.count * scale)))

    def _warm_up(self, local: Stack, options: argparse.Namespace) -> None:
        """One run that does not count: the broker compiles itself, PostgreSQL makes its log."""
        case = self._sized(self.cases[next(iter(options.case or self.cases))], options)
        say("warming up")
        with place(local, options.workers) as where:
            self.sides[0].run(where, case.handler, case.count // 2)

    def _runs(
        self, local: Stack, case: Case, sides: Sequence[Contender], workers: int, rounds: int
    ) -> dict[str, list[Measured]]:
        found: dict[str, list[Measured]] = {side.name: [] for side in sides}
        for number, side in in_turns(sides, rounds):
            what = f"{case.handler}, round {number + 1} of {rounds}, {side.name}"
            measured = self._run(local, case, side, workers, what)
            found[side.name].append(measured)
            say(f"{what}: {measured.rate:,.0f} {self.unit}/s")
        return found

    def _run(self, local: Stack, case: Case, side: Contender, workers: int, what: str) -> Measured:
        """One run; a framework's is done again where it failed, so that the others' still count."""
        for _ in range(FRAMEWORK_TRIES if side.framework else 1):
            with place(local, workers, side.tree) as where:
                try:
                    return side.run(where, case.handler, case.count)
                except RuntimeError as error:
                    say(f"{what}: failed, {error}")
                    failure = error
        raise failure

    def _tell(
        self,
        name: str,
        found: Mapping[str, Sequence[Measured]],
        machine: Machine,
        versions: Mapping[str, str],
    ) -> None:
        first = next(iter(found))
        print_table(
            f"{name}: {self.unit} a second, and {first} as a multiple: median (lowest - highest)",
            ("side", f"{self.unit}/s", f"{first} / it"),
            [(s, _rates(found, s), _ratio(found, first, s)) for s in found],
            ", ".join([machine.line, *(f"{n} {number}" for n, number in versions.items())]),
        )
        print_table(
            f"{name}: CPU microseconds for one of the {self.unit}, medians",
            ("side", *PARTS, "all"),
            [(side, *medians([m.cpu for m in runs]).values()) for side, runs in found.items()],
            "- where too little was used to be told",
        )

    def _keep(
        self, machine: Machine, found: Found, workers: int, rounds: int, versions: Mapping[str, str]
    ) -> None:
        from benchmarks.plot import bars  # takes a second that a quick run saves
        from benchmarks.report import RESULTS

        results = {
            "workers": workers, "rounds": rounds, "unit": self.unit,
            "frameworks": versions, "found": found,
        }  # fmt: skip
        path = write_json(f"{self.name}-{workers}", machine, results)
        groups = {
            case: {side: spread([m.rate for m in runs]) for side, runs in sides.items()}
            for case, sides in found.items()
        }
        bars(RESULTS / f"{path.stem}.svg", self.about.partition("\n")[0], f"{self.unit}/s", groups)
        say(f"written: benchmarks/results/{path.name}, and drawn")


def _rates(found: Mapping[str, Sequence[Measured]], side: str) -> str:
    return f"{spread([m.rate for m in found[side]]).median:,.0f}"


def _ratio(found: Mapping[str, Sequence[Measured]], ours: str, theirs: str) -> str:
    return str(ratio([m.rate for m in found[ours]], [m.rate for m in found[theirs]]))
