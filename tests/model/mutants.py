"""Plants one bug after the other in a copy of the project, and sees which test finds it.

    scripts/mutants                  all of them; those of the journal want PostgreSQL and Valkey
    scripts/mutants --pure           those that pure tests find; --stack: the others
    scripts/mutants --only recall    those whose names have this in them; may be given several times
    scripts/mutants --report docs/reliability     all of them, and their figures go to mutants.json
    scripts/mutants --checkers       other bugs, which suites have to find: see checkers.py

Each bug of `mutants.toml` breaks one rule. It has to die: one of the tests that it names has to
fail with it, and all of them have to pass without it. One whose tests do not pass without it is not
tried, and counts as one that lives. The last line is the verdict; exit code 1 where a bug lives.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.model import checkers
from tests.model.planting import ROOT, Bug, Tree, listed, say
from tests.support import run
from tests.support.published import command_of, version

PURE = ("tests/unit/", "tests/model/")
PATIENCE = 120
"""Seconds that a test may take: a bug may make it wait for ever."""

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)(.*)", re.MULTILINE)


class NotTried(Exception):
    """The tests cannot be run at all."""


@dataclass(frozen=True, slots=True)
class Mutant(Bug):
    """One for which there are tests."""

    killers: tuple[str, ...]
    """Tests that have to find it, as pytest takes them."""

    @property
    def pure(self) -> bool:
        """No service is needed to find it."""
        return all(killer.startswith(PURE) for killer in self.killers)


def mutants() -> list[Mutant]:
    """All of the list."""
    entries = listed("mutants.toml", "mutant")
    return [Mutant(**{**entry, "killers": tuple(entry["killers"])}) for entry in entries]


class TestedTree(Tree):
    """A copy of the project whose tests are run."""

    def __init__(self, folder: Path, patience: int = PATIENCE) -> None:
        super().__init__(folder)
        self._patience = patience

    def test(self, tests: Sequence[str]) -> tuple[int, str]:
        """pytest's exit code, and the first test that failed."""
        done = self._pytest("-x", *tests)
        failed = FAILED.search(done.stdout)
        if failed is None:
            return done.returncode, done.stdout[-2000:] + done.stderr[-500:]
        return done.returncode, failed[1] + (" by its time-out" if "Timeout" in failed[2] else "")

    def failing(self, tests: Sequence[str]) -> list[str]:
        """Those of these tests that fail as things are. Raises NotTried where they cannot run."""
        done = self._pytest(*tests)
        names = [name for name, _ in FAILED.findall(done.stdout)]
        if done.returncode != int(bool(names)):
            raise NotTried(done.stdout[-2000:] + done.stderr[-500:])
        return names

    def _pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                   "-p", "no:randomly", f"--timeout={self._patience}", *arguments]  # fmt: skip
        return self.run(command, {})


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a planted bug."""

    mutant: Mutant
    killed: bool
    said: str
    """The test that found it, or what happened instead."""
    seconds: float


def tried(tree: TestedTree, mutant: Mutant) -> Trial:
    """Plants a bug, and runs the tests that have to find it."""
    began = time.monotonic()
    if mutant.found(ROOT) != 1:
        return Trial(mutant, killed=False, said="its place is not in the code", seconds=0.0)
    with tree.planted(mutant):
        code, said = tree.test(mutant.killers)
    if code == 0:
        said = "no test found it"
    elif code != 1:
        said = f"pytest ended with {code}: {said}"
    return Trial(mutant, killed=code == 1, said=said, seconds=time.monotonic() - began)


def untried(chosen: Sequence[Mutant], failing: Sequence[str]) -> list[Trial]:
    """Those of the bugs of which nothing can be said, as their tests fail without them, too."""
    return [
        Trial(mutant, killed=False, said=f"not tried, {found[0]} fails without it", seconds=0.0)
        for mutant in chosen
        if (found := [name for name in failing if name.startswith(mutant.killers)])
    ]


def tried_all(chosen: Sequence[Mutant], jobs: int, patience: int = PATIENCE) -> Iterator[Trial]:
    """Tries bugs, `jobs` at a time, each in a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: SimpleQueue[TestedTree] = SimpleQueue()
        for number in range(jobs):
            trees.put(TestedTree(Path(folder, str(number)), patience))

        def trial(mutant: Mutant) -> Trial:
            tree = trees.get()
            try:
                return tried(tree, mutant)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(trial, chosen)


def figures(trials: Sequence[Trial], seconds: float) -> dict[str, Any]:
    """What came of them, in numbers. Pure."""
    living = {trial.mutant.name: trial.said for trial in trials if not trial.killed}
    killers = Counter(trial.said.split("::")[0] for trial in trials if trial.killed)
    return {
        "verdict": verdict(trials),
        "planted": len(trials),
        "that need no service": sum(trial.mutant.pure for trial in trials),
        "killed": len(trials) - len(living),
        "lived": living,
        "seconds": round(seconds),
        "killed by": dict(killers.most_common()),
    }


def verdict(trials: Sequence[Trial]) -> str:
    """In a few words."""
    living = sum(not trial.killed for trial in trials)
    return f"{living} LIVE" if living else "all found"


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pure", action="store_true", help="those that need no service")
    parser.add_argument("--stack", action="store_true", help="those that do need some")
    parser.add_argument(
        "--only", action="append", default=[], help="those with this in their names; several times"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--patience", type=int, default=PATIENCE, help="seconds for a test")
    parser.add_argument("--report", type=Path, help="folder for mutants.json, the figures")
    parser.add_argument(
        "--checkers", action="store_true", help="instead: bugs that the suites have to find"
    )
    parser.add_argument(
        "--suite", action="append", default=[], choices=checkers.SUITES,
        help="of --checkers, the runs of this one; several times",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="of --checkers, folder for what runs have said")
    return parser


def options_of(
    parser: argparse.ArgumentParser, given: Sequence[str] | None = None
) -> argparse.Namespace:
    """The options; those that say nothing to the bugs that are planted are an error."""
    options = parser.parse_args(given)
    if options.checkers:
        others, which = ("pure", "stack", "jobs", "patience"), "not of --checkers"
    else:
        others, which = ("suite", "keep"), "of --checkers alone"
    for name in others:
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"--{name} is {which}")
    return options


def chosen_by(options: argparse.Namespace) -> list[Mutant]:
    """Those that the options name."""
    chosen = [m for m in mutants() if not options.only or any(t in m.name for t in options.only)]
    if options.pure or options.stack:
        chosen = [m for m in chosen if m.pure == options.pure]
    return chosen


def trials_of(chosen: Sequence[Mutant], options: argparse.Namespace) -> Iterator[Trial]:
    """Tries them, those first whose tests do not pass as things are. Raises NotTried."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tests = sorted({killer for mutant in chosen for killer in mutant.killers})
        tree = TestedTree(Path(folder), options.patience)
        # Once more, as the machine may have been too busy for somebody's patience.
        failing = (found := tree.failing(tests)) and tree.failing(found)
    sick = untried(chosen, failing)
    yield from sick
    sound = [m for m in chosen if m not in [trial.mutant for trial in sick]]
    yield from tried_all(sound, options.jobs, options.patience)


def main() -> int:
    options = options_of(parser := parser_of())
    if options.checkers:
        return checkers.main(options)
    if options.report is not None:  # what cannot be written is known now
        options.report.mkdir(parents=True, exist_ok=True)
    began, trials = time.monotonic(), []
    of_code = version()  # which may be changed while it runs
    run.begin()  # one stack for all of them
    try:
        for trial in trials_of(chosen_by(options), options):
            trials.append(trial)
            how = "killed by" if trial.killed else "LIVES:"
            say(f"{trial.mutant.name}: {how} {trial.said} ({trial.seconds:.0f} s)")
    except NotTried as error:
        say(f"{error}\nnot tried: the tests cannot be run")
        return 2
    finally:
        run.end()
    took = time.monotonic() - began
    if options.report is not None:
        command = command_of("scripts/mutants", parser, options)
        told = {"command": command, "version": of_code, **figures(trials, took)}
        (options.report / "mutants.json").write_text(json.dumps(told, indent=1) + "\n")
    say(f"{len(trials)} planted bugs, {took:.0f} s: {verdict(trials)}")
    return int(any(not trial.killed for trial in trials))


if __name__ == "__main__":
    run.end_at_sigterm()
    sys.exit(main())
