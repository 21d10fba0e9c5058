"""The environment of other frameworks: made on demand from benchmarks/frameworks/requirements.lock.

They are no dependency of the project. Where they cannot be installed, their sides are skipped with
the reason.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.report import say

ROOT = Path(__file__).parents[1]
LOCK = Path(__file__).parent / "frameworks" / "requirements.lock"
HOME = ROOT / ".bench-venv"
PYTHON = HOME / "bin" / "python"
STAMP = HOME / "setup.stamp"
LONGEST = 600.0


class NotInstalled(Exception):
    """Why the frameworks are not there."""


@cache
def frameworks_python() -> Path:
    """The interpreter that has them, just as the lock names them. Raises NotInstalled."""
    wanted = f"{sys.version} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}"
    if not STAMP.exists() or STAMP.read_text() != wanted:
        say("installing other frameworks, once")
        uv = [sys.executable, "-m", "uv"]
        _call([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(HOME)])
        _call([*uv, "pip", "install", "--quiet", "--python", str(PYTHON), "--require-hashes",
               "-r", str(LOCK)])  # fmt: skip
        STAMP.write_text(wanted)
    return PYTHON


def version_of(package: str) -> str:
    """Its version there. Raises NotInstalled."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return _call([str(frameworks_python()), "-c", code]).strip()


def _call(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=LONGEST
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise NotInstalled(lines[-1] if lines else str(error)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    return done.stdout
