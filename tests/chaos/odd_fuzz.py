"""Has a coverage-guided fuzzer make messages, and checks how each is read.

    scripts/fuzz --seconds 120 --seed 7
    scripts/fuzz --seconds 3600 --report docs/reliability
    scripts/fuzz --replay FILE           what it has found

It begins with generated messages, most of them malformed, and keeps those of its own that take
branches which none took before. Each has to be read as a request that says what its message says,
or refused as malformed with a reason; nothing may be raised, and none may take long. It ends with
the first that is not so. The last line is the verdict; exit code 1 where something is wrong, 2
where atheris cannot be had.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedback.contract.headers import OURS
from tests.chaos.odd_messages import CHANGES, Generator
from tests.chaos.odd_reading import decoded, encoded, problems
from tests.support.published import ROOT, command_of, version

LOCK = ROOT / "fuzz.lock"
HOME = ROOT / ".cache" / "fuzz"
"""Where atheris is: nothing else needs it, and there are no wheels of it for every system."""
FUZZED = "tests.chaos.odd_fuzzed"
SEEDS = 12 * len(CHANGES)
"""Generated messages that it begins with."""
LONGEST = 8192
"""Bytes of a message."""
PATIENCE = 10
"""Seconds that one message may take."""
MEMORY = 2048
"""MiB that its process may hold."""
INSTALLING = 300.0
SHOWN = 3000

RUNS = re.compile(r"^stat::number_of_executed_units: +(\d+)", re.MULTILINE)
NEW = re.compile(r"^stat::new_units_added: +(\d+)", re.MULTILINE)
COVERED = re.compile(r"\bcov: (\d+)")


class NotInstalled(Exception):
    """Why atheris is not there."""


@dataclass(slots=True)
class Fuzzed:
    """What came of a run."""

    runs: int
    new: int
    """Messages that took branches which none took before."""
    covered: tuple[int, int]
    """Branches and calls that the seeds have taken, and all in the end."""
    seconds: float
    wrong: list[str]
    found: bytes | None = None
    """The message that something is wrong with."""


def atheris_home() -> Path:
    """The folder that has it, just as the lock names it. Raises NotInstalled."""
    stamp = HOME / LOCK.name
    if not stamp.exists() or stamp.read_bytes() != LOCK.read_bytes():
        shutil.rmtree(HOME, ignore_errors=True)
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python",
                   sys.executable, "--target", str(HOME), "--no-deps", "--only-binary", ":all:",
                   "--require-hashes", "-r", str(LOCK)]  # fmt: skip
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALLING)
        except subprocess.CalledProcessError as error:
            raise NotInstalled((error.stderr or error.stdout).strip()[-500:]) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotInstalled(str(error)) from error
        shutil.copy(LOCK, stamp)
    return HOME


def fuzz(seconds: float, seed: int, folder: Path, extra: Sequence[str] = ()) -> Fuzzed:
    """Lets it run for so long, or until something is wrong. Raises NotInstalled."""
    home = atheris_home()
    corpus, found = folder / "corpus", folder / "found"
    for made in (corpus, found):
        made.mkdir()
    generator = Generator(seed)
    for number in range(SEEDS):
        (corpus / f"{number:05d}").write_bytes(encoded(generator.next())[:LONGEST])
    words = folder / "words"
    words.write_text("".join(f'"{name}"\n' for name in sorted(OURS)))
    command = [
        sys.executable, "-m", FUZZED, *extra, f"-max_total_time={max(1, round(seconds))}",
        f"-max_len={LONGEST}", f"-timeout={PATIENCE}", f"-rss_limit_mb={MEMORY}",
        # 0 would be a seed by chance.
        f"-seed={seed + 1}", f"-dict={words}", f"-artifact_prefix={found}/",
        "-print_final_stats=1", str(corpus),
    ]  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{home}"}
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    took = time.monotonic() - began
    return fuzzed_of(done.returncode, done.stdout, sorted(found.iterdir()), took)


def fuzzed_of(code: int, said: str, found: Sequence[Path], seconds: float) -> Fuzzed:
    """What a fuzzer that has ended says."""
    covered = [int(n) for n in COVERED.findall(said)]
    counts = [int(match[1]) if (match := one.search(said)) else 0 for one in (RUNS, NEW)]
    reached = (covered[0], covered[-1]) if covered else (0, 0)
    made = Fuzzed(counts[0], counts[1], reached, seconds, [])
    if found:
        made.found = found[0].read_bytes()
        how = found[0].name.partition("-")[0]
        made.wrong = problems(decoded(made.found)) if how == "crash" else []
        made.wrong = made.wrong or [f"{how}: {said[-SHOWN:]}"]
    elif code != 0 or not counts[0]:
        made.wrong = [f"the fuzzer ended with {code}: {said[-SHOWN:]}"]
    return made


def verdict(made: Fuzzed) -> str:
    """In a few words."""
    if made.wrong:
        return f"WRONG: {made.wrong[0].splitlines()[0]}"
    return "each is read as what it says, or refused with a reason"


def figures(made: Fuzzed) -> dict[str, Any]:
    """The run in numbers."""
    return {
        "verdict": verdict(made),
        "seconds": round(made.seconds),
        "messages it began with": SEEDS,
        "messages tried": made.runs,
        "that took new branches": made.new,
        "branches taken by those it began with": made.covered[0],
        "branches taken": made.covered[1],
        "wrong": made.wrong,
    }


def replayed(data: bytes) -> int:
    """Shows what these bytes are, and what is wrong with how they are read."""
    record = decoded(data)
    wrong = problems(record)
    sys.stdout.write(f"{record}\n{'; '.join(wrong) or 'read as it has to be'}\n")
    return int(bool(wrong))


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--report", type=Path, help="folder for fuzz.json, the figures")
    parser.add_argument("--keep", type=Path, help="folder for a message that is read wrongly")
    parser.add_argument("--replay", type=Path, help="instead: reads such a message again")
    return parser


def main() -> int:
    options = (parser := parser_of()).parse_args()
    if options.replay is not None:
        return replayed(options.replay.read_bytes())
    of_code = version()
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            made = fuzz(options.seconds, options.seed, Path(folder))
    except NotInstalled as error:
        sys.stdout.write(f"{error}\nnot tried: atheris cannot be installed\n")
        return 2
    if made.found is not None:
        options.keep = options.keep or Path(tempfile.gettempdir())
        kept = options.keep / f"oncepool-fuzz-{options.seed}"
        kept.write_bytes(made.found)
        sys.stdout.write(f"scripts/fuzz --replay {kept}\n{decoded(made.found)}\n")
    told = figures(made)
    if options.report is not None:
        options.report.mkdir(parents=True, exist_ok=True)
        told = {"command": command_of("scripts/fuzz", parser, options), "version": of_code, **told}
        (options.report / "fuzz.json").write_text(json.dumps(told, indent=1) + "\n")
    lines = [f"{name}: {value:,}" for name, value in told.items() if isinstance(value, int)]
    sys.stdout.write("\n".join([*lines, *made.wrong, f"seed {options.seed}: {verdict(made)}", ""]))
    return int(bool(made.wrong))


if __name__ == "__main__":
    sys.exit(main())
