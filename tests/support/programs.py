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
) -> subprocess.Popen[bytes]:
    """``python -m MODULE ARGUMENTS`` under this environment and `environment`, stronger.

    What it says on stderr is added to the file `log`; `stdout` is as Popen has it. The caller ends
    it.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=stdout,
            stderr=file,
        )
