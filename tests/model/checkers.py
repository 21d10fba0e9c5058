"""Plants bugs, and sees that the suites find them: each by the check that it is for.

    scripts/mutants --checkers                   all of `checkers.toml`: an hour, one run at a time
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
FOUND, SOUND = 1, 0
"""Exit codes of a suite."""
MARK = "CHECKERS_TREE"
"""Names the copy in the environment of all processes of a run."""
SHOWN = 160
LAST = 1500
FILE = "checkers.json"
STARTS = re.compile(r"^((?:\w+=\S+ )*)exec \.venv/bin/python -m (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hunt:
    """A suite that has to find a bug."""

    run: str
    """Its name, and its options."""
    by: str
    """What it says then."""

    @property
    def suite(self) -> str:
        return self.run.split()[0]


@dataclass(frozen=True, slots=True)
class Quarry:
    """A bug, the promise that it breaks, and who has to find it."""

    bug: Bug
    breaks: str
    hunts: tuple[Hunt, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one hunt."""

    quarry: Quarry
    hunt: Hunt
    found: bool
    said: str
    """The line by which it was found, or what happened instead."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """What a suite's command came to."""

    code: int
    said: str
    seconds: float


def quarries() -> list[Quarry]:
    """All of the list. A bug without a place of its own is one of `mutants.toml`."""
    known = {entry["name"]: entry for entry in listed("mutants.toml", "mutant")}
    return [quarry_of(entry, known) for entry in listed("checkers.toml", "bug")]


def quarry_of(entry: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> Quarry:
    place = entry if "file" in entry else known[entry["name"]]
    bug = Bug(entry["name"], place["file"], place["old"], place["new"])
    return Quarry(bug, entry["breaks"], tuple(Hunt(**hunt) for hunt in entry["found"]))


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

    def suite(self, command: str, name: str = "") -> Run:
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
            kept = self._keep / f"{self._number:02}-{suite}-{name or 'sound'}.log"
            kept.write_text(f"scripts/{command}\n{said}\nexit code {code}\n")
        return Run(code, said, time.monotonic() - began)


class Hunting:
    """Runs of suites with bugs and without."""

    def __init__(self, tree: SuiteTree) -> None:
        self._tree = tree
        self.sound: dict[str, Run] = {}
        """What each command came to without a bug."""

    def hunt(self, quarry: Quarry, hunt: Hunt) -> Finding:
        """Plants a bug, and runs a suite that has to find it."""
        if quarry.bug.found(ROOT) != 1:
            return Finding(
                quarry, hunt, found=False, said="its place is not in the code", seconds=0
            )
        if hunt.run not in self.sound:
            self.sound[hunt.run] = self._tree.suite(hunt.run)
        without = self.sound[hunt.run]
        if without.code != SOUND:
            said = f"not tried, it fails without it: {without.said[-LAST:]}"
            return Finding(quarry, hunt, found=False, said=said, seconds=0)
        with self._tree.planted(quarry.bug):
            return judged(quarry, hunt, self._tree.suite(hunt.run, quarry.bug.name))


def judged(quarry: Quarry, hunt: Hunt, with_it: Run) -> Finding:
    """Whether a run with the bug has found it, by the right check. Pure."""
    lines = [line.strip() for line in with_it.said.splitlines() if hunt.by in line]
    found = with_it.code == FOUND and bool(lines)
    if found:
        said = lines[0][:SHOWN]
    elif with_it.code == SOUND:
        said = "the suite says that all is well"
    else:
        said = f"exit code {with_it.code}, nothing of {hunt.by!r}: {with_it.said[-LAST:]}"
    return Finding(quarry, hunt, found, said, with_it.seconds)


def chosen_by(options: argparse.Namespace) -> list[tuple[Quarry, Hunt]]:
    """The hunts that the options name, those of a suite together."""
    return [
        (quarry, hunt)
        for suite in SUITES if not options.suite or suite in options.suite
        for quarry in quarries()
        if not options.only or any(part in quarry.bug.name for part in options.only)
        for hunt in quarry.hunts if hunt.suite == suite
    ]  # fmt: skip


def hunts(
    chosen: Sequence[tuple[Quarry, Hunt]], keep: Path | None, sound: dict[str, Run]
) -> Iterator[Finding]:
    """Makes them one after the other; notes in `sound` what commands came to without a bug."""
    with tempfile.TemporaryDirectory(prefix="checkers-") as folder:
        # PostgreSQL does not run as root and has to enter it.
        Path(folder).chmod(0o755)
        hunting = Hunting(SuiteTree(Path(folder), keep))
        hunting.sound = sound
        for quarry, hunt in chosen:
            yield hunting.hunt(quarry, hunt)


# What is told


def figures(findings: Sequence[Finding], sound: Mapping[str, Run], code: str) -> dict[str, Any]:
    """What came of them, in numbers; `code`: the version that they were made with. Pure."""
    bugs: dict[str, Any] = {}
    for one in findings:
        told = bugs.setdefault(one.quarry.bug.name, {"breaks": one.quarry.breaks, "runs": {}})
        told["runs"][one.hunt.run] = {
            "found": one.found, "by": one.hunt.by, "said": one.said,
            "seconds": round(one.seconds), "version": code,
        }  # fmt: skip
    without = {
        run: {"exit code": made.code, "seconds": round(made.seconds), "version": code}
        for run, made in sound.items()
    }
    return {"bugs": bugs, "without a bug": without}


def merged(
    kept: Mapping[str, Any], new: Mapping[str, Any], now: Sequence[Quarry]
) -> dict[str, Any]:
    """What is known of all hunts that the list has now: new figures, and kept ones of the others.

    Pure.
    """
    bugs: dict[str, Any] = {}
    for quarry in now:
        runs: dict[str, Any] = {}
        for source in (kept, new):
            known = source.get("bugs", {}).get(quarry.bug.name, {}).get("runs", {})
            runs |= {h.run: known[h.run] for h in quarry.hunts if h.run in known}
        if runs:
            order = [h.run for h in quarry.hunts if h.run in runs]
            bugs[quarry.bug.name] = {
                "breaks": quarry.breaks,
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
        "hunts": len(all_runs),
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
    """Makes the hunts that the options name."""
    for folder in filter(None, (options.report, options.keep)):  # known now, not in an hour
        folder.mkdir(parents=True, exist_ok=True)
    # Else those who are started where nobody can interrupt them cannot be, either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    began, code = time.monotonic(), version()
    findings, told = list[Finding](), dict[str, Any]()
    sound: dict[str, Run] = {}
    for one in hunts(chosen_by(options), options.keep, sound):
        findings.append(one)
        how = "found by" if one.found else "NOT FOUND by"
        say(f"{one.quarry.bug.name}: {how} scripts/{one.hunt.run} ({one.seconds:.0f} s)")
        say(f"    {one.said}")
        if options.report is not None:  # each at once: a whole run takes long
            told = publish(options.report / FILE, figures([one], sound, code))
    if told:
        say("\n".join(table(told)))
    lived = sum(not one.found for one in findings)
    took = time.monotonic() - began
    say(f"{len(findings)} runs with a planted bug, {took:.0f} s: {verdict_of(lived)}")
    return int(lived > 0)


def publish(file: Path, new: Mapping[str, Any]) -> dict[str, Any]:
    """Writes new figures beside those that are kept; all of them."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    told = merged(kept, new, quarries())
    file.write_text(json.dumps(told, indent=1) + "\n")
    return told
