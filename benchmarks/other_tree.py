"""Another commit of the project as one more side: `--against REV` of a benchmark.

    scripts/bench against REV NAME [its options]

Its files are checked out into a folder of their own for the run, and Oncepool's processes start
there. What stands in benchmarks/ here and not there is copied, so that both run the same handlers.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds --against."""
    parser.add_argument("--against", metavar="REV", help="another commit as one more side")


@contextmanager
def other_tree(rev: str | None) -> Iterator[Path | None]:
    """Another commit's files; None for None."""
    if rev is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="oncepool-other-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), rev], check=True, capture_output=True)
        try:
            _complete(tree / "benchmarks")
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _complete(there: Path) -> None:
    there.mkdir(exist_ok=True)
    for path in (ROOT / "benchmarks").glob("*.py"):
        if not (there / path.name).exists():
            shutil.copy(path, there)
