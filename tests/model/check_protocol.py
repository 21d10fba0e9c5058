"""Checks the model of the protocol, `protocol.pml`, exhaustively with Spin.

    scripts/model                     every scope, and every variant with one rule broken
    scripts/model --variant NO_TOKEN  one variant, with the steps that lead to its counter-example

A scope must hold: no assertion fails, and nothing goes on for ever. A variant must fail. The last
line is the verdict; exit code 1 where one of them does not do what it must.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.places import cache_folder

MODEL = Path(__file__).with_name("protocol.pml")
MEMORY = 4000
"""MiB that a search may take."""


class NoChecker(Exception):
    """Spin or a C compiler is missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a search came to."""

    states: int
    error: str
    """What does not hold; empty where everything does."""
    trail: str = ""
    """The steps that lead there."""


SCOPES: Mapping[str, str] = {
    "a fault and a planned move": "",
    "the same with an external call among the requests": "-DEXTERNAL=2",
    "two faults": "-DFAULTS=2 -DMOVES=0",
    "a producer that does not wait before it sends again": "-DLOG=3 -DEAGER=1 -DMOVES=0",
    "without marks, with a producer that sends again": "-DREAD_AGAIN=0 -DLOG=4",
}
"""What is tried -> the model's options."""

VARIANTS: Mapping[str, str] = {
    "MARK_IS_COMMITTED": "",
    "MARK_SKIPS_ITS_RECORDS": "",
    "MARK_SKIPS_UNREAD": "",
    "LAST_WORD_SKIPS_OPEN": "",
    "LEFT_OUT_IS_FINISHED": "",
    "GIVEN_UP_IS_FINISHED": "",
    "RUNS_WHILE_GIVING_UP": "",
    "DISPATCH_EARLY": "",
    "ERROR_IS_TAKEN_FOR_LANDED": "",
    "NO_TOKEN": "",
    "AGAIN_AFTER_REVOKE": "",
    "NO_REJOIN": "",
    "NEW_BEFORE_GAP": "",
    "NO_PRIMARY_KEY": "",
    "CLAIM_AFTER_CALL": "-DEXTERNAL=3",
    "CLAIMS_ARE_CALLED_AGAIN": "-DEXTERNAL=3",
    "NO_RESEND": "-DREAD_AGAIN=0",
}
"""A rule that is broken -> the other options under which that shows."""


@dataclass(frozen=True, slots=True)
class Checker:
    """Spin, and the folder in which it works."""

    spin: str
    folder: Path

    def search(self, options: str, *, cycles: bool = False) -> Finding:
        """Tries everything that may happen. `cycles`: looks for what goes on for ever instead."""
        flags = options.split()
        shutil.copy(MODEL, self.folder)  # what is found is written beside it
        self._run([self.spin, "-a", *flags, MODEL.name])
        kind = ["-DNP", "-DNOFAIR"] if cycles else ["-DSAFETY"]
        self._run(
            ["cc", "-O1", "-w", "-DCOLLAPSE", f"-DMEMLIM={MEMORY}", *kind, "-o", "pan", "pan.c"]
        )
        said = self._run(["./pan", "-m100000", "-w22", *(["-l"] if cycles else [])])
        states = re.search(r"(\d+) states, stored", said)
        error = re.search(r"pan:1: (.*?)(?: \(at depth|\n)", said)
        if states is None or (error is None and "errors: 0" not in said):
            raise NoChecker(f"the search ended early:\n{said}")
        if error is None:
            if "Search not completed" in said:
                raise NoChecker(f"the search ended early:\n{said}")
            return Finding(int(states[1]), "")
        trail = self._run([self.spin, "-t", *flags, MODEL.name])
        steps = [line.strip() for line in trail.splitlines() if re.search(r"\(\d\)$", line)]
        return Finding(int(states[1]), error[1], "\n".join(steps))

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        # What is found is no failure: `pan` and the replay say so in words.
        if done.returncode and command[0] not in ("./pan", self.spin):
            raise NoChecker(f"{command[0]} failed:\n{said}")
        return said


def find_spin() -> str:
    """The program: installed, else fetched once from the system's packages, without installing."""
    if shutil.which("cc") is None:
        raise NoChecker("Spin's searches need a C compiler: cc")
    if found := shutil.which("spin"):
        return found
    folder = cache_folder() / "spin"
    program = folder / "usr" / "bin" / "spin"
    if program.exists():
        return str(program)
    if shutil.which("apt-get") is None:
        raise NoChecker("Spin is not there: install the package `spin`")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as fetched:
        for command in (["apt-get", "-q", "download", "spin"], ["sh", "-c", _UNPACK, str(folder)]):
            done = subprocess.run(command, cwd=fetched, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoChecker(f"Spin cannot be fetched: install `spin`\n{done.stderr}")
    return str(program)


_UNPACK = 'dpkg-deb -x spin_*.deb "$0"'


def check(checker: Checker, scopes: Mapping[str, str]) -> tuple[int, int]:
    """Runs the scopes and the variants: states seen, and what did not do as it must."""
    states = wrong = 0
    for name, options in scopes.items():
        for cycles in (False, True):
            found = checker.search(options, cycles=cycles)
            states += found.states
            wrong += bool(found.error)
            what = "ends" if cycles else "holds"
            verdict = f"BROKEN: {found.error}\n{found.trail}" if found.error else what
            _say(f"{name}: {found.states:,} states: {verdict}")
    for name, options in VARIANTS.items():
        found = checker.search(f"-D{name} {options}")
        wrong += not found.error
        _say(f"with {name}: {'fails, as it must' if found.error else 'HOLDS, and must not'}")
    return states, wrong


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=sorted(VARIANTS), help="show how this one fails")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            checker = Checker(find_spin(), Path(folder))
            if options.variant:
                found = checker.search(f"-D{options.variant} {VARIANTS[options.variant]}")
                _say(f"{found.trail}\n{options.variant}: {found.error or 'holds'}")
                return int(not found.error)
            states, wrong = check(checker, SCOPES)
        except NoChecker as error:
            _say(f"not checked: {error}")
            return 2
    broken = f"{wrong} BROKEN" if wrong else "holds"
    _say(f"{states:,} states, {len(VARIANTS)} variants that must fail: the protocol {broken}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
