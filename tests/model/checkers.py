"""Plants bugs, and sees that the suites find them: each by the check that it is for.

    scripts/mutants --checkers                   all of `checkers.toml`, in more than an hour
    scripts/mutants --checkers --only order      those whose names have this in them
    scripts/mutants --checkers --suite kills     those runs alone; may be given several times
    scripts/mutants --checkers --report docs/reliability     figures go to checkers.json, beside
                                                 those of runs that are not made again
    scripts/mutants --checkers --keep FOLDER     what each run has said

A suite is run with its own command, on a copy of the tree. A bug counts as found where the suite
ends with exit code 1 and its verdict has the words of the check, and where the same command ends
with 0 without the bug.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.real.resources import processes
from tests.model.planting import ROOT, Bug, Tree, listed, say
from tests.support.published import version

SUITES = ("simulate", "fuzz", "kills", "malformed", "chaos", "soak")
PATIENCE = 1200.0
"""Seconds that a suite may take: a bug may make it wait for long."""
FAILED, PASSED = 1, 0
"""Exit codes of a suite."""
MARK = "CHECKERS_TREE"
"""Names the copy in the environment of all processes of a run."""
SHOWN = 160
LAST = 1500
FILE = "checkers.json"
STARTS = re.compile(r"^((?:\w+=\S+ )*)exec \.venv/bin/python -m (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of a suite that has to find a bug."""

    command: str
    """The suite's name, and its options."""
    by: str
    """What it says then."""

    @property
    def suite(self) -> str:
        return self.command.split()[0]


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, the promise that it breaks, and who has to find it."""

    bug: Bug
    breaks: str
    runs: tuple[SuiteRun, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one run with a bug."""

    planted: PlantedBug
    wanted: SuiteRun
    found: bool
    said: str
    """The line by which it was found, or what happened instead."""
    seconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a suite's command came to."""

    code: int
    said: str
    seconds: float


def planted_bugs() -> list[PlantedBug]:
    """All of the list. A bug without a place of its own is one of `mutants.toml`."""
    known = {entry["name"]: entry for entry in listed("mutants.toml", "mutant")}
    return [planted_bug_of(entry, known) for entry in listed("checkers.toml", "bug")]


def planted_bug_of(entry: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> PlantedBug:
    place = entry if "file" in entry else known[entry["name"]]
    bug = Bug(entry["name"], place["file"], place["old"], place["new"])
    runs = tuple(SuiteRun(wanted["run"], wanted["by"]) for wanted in entry["found"])
    return PlantedBug(bug, entry["breaks"], runs)


def module_of(suite: str) -> tuple[str, dict[str, str]]:
    """What the script of a suite starts, and the variables that it sets."""
    found = STARTS.search((ROOT / "scripts" / suite).read_text())
    if found is None:
        raise ValueError(f"scripts/{suite} starts no module")
    return found[2], dict(word.split("=", 1) for word in found[1].split())


def end_marked(mark: str) -> int:
    """Ends processes that have this variable: a bug may leave some behind. How many there were."""
    found = 0
    for pid in processes():
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                found += 1
    return found


class SuiteTree(Tree):
    """A copy of the project whose suites are run, one at a time: each wants the whole machine."""

    def __init__(self, folder: Path, keep: Path | None = None) -> None:
        super().__init__(folder)
        self._keep = keep
        self._number = 0

    def suite(self, command: str, name: str = "") -> RunResult:
        """Runs `scripts/<command>`; `name`: of the bug that is planted."""
        suite, *options = shlex.split(command)
        module, variables = module_of(suite)
        began = time.monotonic()
        try:
            done = self.run(
                [sys.executable, "-m", module, *options], {**variables, MARK: str(self._folder)},
                PATIENCE,
            )  # fmt: skip
            code, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            code, said = -1, f"no end within {PATIENCE:.0f} s"
        finally:
            end_marked(f"{MARK}={self._folder}")
        if self._keep is not None:
            self._number += 1
            kept = self._keep / f"{self._number:02}-{suite}-{name or 'without a bug'}.log"
            kept.write_text(f"scripts/{command}\n{said}\nexit code {code}\n")
        return RunResult(code, said, time.monotonic() - began)


class Runner:
    """Runs of suites with bugs and without."""

    def __init__(self, tree: SuiteTree, without: dict[str, RunResult]) -> None:
        """`without`: what each command came to without a bug; it is added to."""
        self._tree = tree
        self._without = without

    def run(self, planted: PlantedBug, wanted: SuiteRun) -> Finding:
        """Plants a bug, and runs a suite that has to find it."""
        if planted.bug.found(ROOT) != 1:
            return Finding(
                planted, wanted, found=False, said="its place is not in the code", seconds=0
            )
        if wanted.command not in self._without:
            self._without[wanted.command] = self._tree.suite(wanted.command)
        without = self._without[wanted.command]
        if without.code != PASSED:
            said = f"not tried, it fails without it: {without.said[-LAST:]}"
            return Finding(planted, wanted, found=False, said=said, seconds=0)
        with self._tree.planted(planted.bug):
            return judged(planted, wanted, self._tree.suite(wanted.command, planted.bug.name))


def judged(planted: PlantedBug, wanted: SuiteRun, with_it: RunResult) -> Finding:
    """Whether a run with the bug has found it, by the right check. Pure."""
    lines = [line.strip() for line in with_it.said.splitlines() if wanted.by in line]
    found = with_it.code == FAILED and bool(lines)
    if found:
        said = lines[0][:SHOWN]
    elif with_it.code == PASSED:
        said = "the suite says that all is well"
    else:
        said = f"exit code {with_it.code}, nothing of {wanted.by!r}: {with_it.said[-LAST:]}"
    return Finding(planted, wanted, found, said, with_it.seconds)


def chosen_by(options: argparse.Namespace) -> list[tuple[PlantedBug, SuiteRun]]:
    """The runs that the options name, those of a suite together."""
    return [
        (planted, wanted)
        for suite in SUITES if not options.suite or suite in options.suite
        for planted in planted_bugs()
        if not options.only or any(part in planted.bug.name for part in options.only)
        for wanted in planted.runs if wanted.suite == suite
    ]  # fmt: skip


def findings_of(
    chosen: Sequence[tuple[PlantedBug, SuiteRun]], keep: Path | None, without: dict[str, RunResult]
) -> Iterator[Finding]:
    """Makes the runs one after the other; notes in `without` what they came to without a bug."""
    with tempfile.TemporaryDirectory(prefix="checkers-") as folder:
        # PostgreSQL does not run as root and has to enter it.
        Path(folder).chmod(0o755)
        runner = Runner(SuiteTree(Path(folder), keep), without)
        for planted, wanted in chosen:
            yield runner.run(planted, wanted)


# What is told


def figures(
    findings: Sequence[Finding], without: Mapping[str, RunResult], code: str
) -> dict[str, Any]:
    """What came of them, in numbers; `code`: the version that they were made with. Pure."""
    bugs: dict[str, Any] = {}
    for one in findings:
        told = bugs.setdefault(one.planted.bug.name, {"breaks": one.planted.breaks, "runs": {}})
        told["runs"][one.wanted.command] = {
            "found": one.found, "by": one.wanted.by, "said": one.said,
            "seconds": round(one.seconds), "version": code,
        }  # fmt: skip
    told_without = {
        run: {"exit code": made.code, "seconds": round(made.seconds), "version": code}
        for run, made in without.items()
    }
    return {"bugs": bugs, "without a bug": told_without}


def merged(
    kept: Mapping[str, Any], new: Mapping[str, Any], now: Sequence[PlantedBug]
) -> dict[str, Any]:
    """What is known of all runs that the list has now: new figures, and kept ones of the others.

    Pure.
    """
    bugs: dict[str, Any] = {}
    for planted in now:
        runs: dict[str, Any] = {}
        for source in (kept, new):
            known = source.get("bugs", {}).get(planted.bug.name, {}).get("runs", {})
            runs |= {r.command: known[r.command] for r in planted.runs if r.command in known}
        if runs:
            order = [r.command for r in planted.runs if r.command in runs]
            bugs[planted.bug.name] = {
                "breaks": planted.breaks,
                "runs": {run: runs[run] for run in order},
            }
    wanted = {run for told in bugs.values() for run in told["runs"]}
    without = {**kept.get("without a bug", {}), **new.get("without a bug", {})}
    all_runs = [told for bug in bugs.values() for told in bug["runs"].values()]
    lived = sum(not one["found"] for one in all_runs)
    found_by = Counter(
        run.split()[0] for bug in bugs.values() for run, told in bug["runs"].items()
        if told["found"]
    )  # fmt: skip
    return {
        "command": "scripts/mutants --checkers",
        "verdict": verdict_of(lived),
        "planted": len(bugs),
        "runs": len(all_runs),
        "found by": dict(found_by.most_common()),
        "seconds": sum(one["seconds"] for one in all_runs),
        "bugs": bugs,
        "without a bug": {run: told for run, told in without.items() if run in wanted},
    }


def verdict_of(lived: int) -> str:
    return f"{lived} NOT FOUND" if lived else "each found by the check that it is for"


def table(told: Mapping[str, Any]) -> list[str]:
    """Bugs and suites, as a page shows them. Pure."""
    there = {run.split()[0] for bug in told["bugs"].values() for run in bug["runs"]}
    suites = [suite for suite in SUITES if suite in there]
    lines = [
        "| bug | " + " | ".join(f"`{suite}`" for suite in suites) + " |",
        "|---|" + "---|" * len(suites),
    ]
    for name, bug in told["bugs"].items():
        cells = []
        for suite in suites:
            runs = [one for run, one in bug["runs"].items() if run.split()[0] == suite]
            cells.append("; ".join(map(_cell, runs)))
        lines.append(f"| {name} ({bug['breaks']}) | " + " | ".join(cells) + " |")
    return lines


def _cell(one: Mapping[str, Any]) -> str:
    by = one["by"].removeprefix("PROBLEM ").strip(": ")
    return f"{by}, {one['seconds']} s" if one["found"] else "**not found**"


def main(options: argparse.Namespace) -> int:
    """Makes the runs that the options name."""
    for folder in filter(None, (options.report, options.keep)):  # known now, not in an hour
        folder.mkdir(parents=True, exist_ok=True)
    # Else those who are started where nobody can interrupt them cannot be, either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    began, code = time.monotonic(), version()
    findings, told = list[Finding](), dict[str, Any]()
    without: dict[str, RunResult] = {}
    for one in findings_of(chosen_by(options), options.keep, without):
        findings.append(one)
        how = "found by" if one.found else "NOT FOUND by"
        say(f"{one.planted.bug.name}: {how} scripts/{one.wanted.command} ({one.seconds:.0f} s)")
        say(f"    {one.said}")
        if options.report is not None:  # each at once: a whole run takes long
            told = publish(options.report / FILE, figures([one], without, code))
    if told:
        say("\n".join(table(told)))
    lived = sum(not one.found for one in findings)
    took = time.monotonic() - began
    say(f"{len(findings)} runs with a planted bug, {took:.0f} s: {verdict_of(lived)}")
    return int(lived > 0)


def publish(file: Path, new: Mapping[str, Any]) -> dict[str, Any]:
    """Writes new figures beside those that are kept; all of them."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    told = merged(kept, new, planted_bugs())
    file.write_text(json.dumps(told, indent=1) + "\n")
    return told
