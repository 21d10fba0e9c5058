"""Programs of ours as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Where they are started: `python -m` finds all packages there."""


def started(
    module: str,
    *arguments: str,
    environment: Mapping[str, str],
    log: Path,
    stdout: int | None = None,
    files: tuple[int, int] | None = None,
) -> subprocess.Popen[bytes]:
    """``python -m MODULE ARGUMENTS`` under this environment and `environment`, stronger.

    What it says on stderr is added to the file `log`; `stdout` is as Popen has it. `files` are the
    soft and the hard limit of its open files. The caller ends it.
    """
    command = [sys.executable, "-m", module, *arguments]
    if files is not None:
        limits = "ulimit -Sn {}; ulimit -Hn {}".format(*files)
        command = ["sh", "-c", f'{limits}; exec "$@"', "sh", *command]
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=stdout,
            stderr=file,
        )
