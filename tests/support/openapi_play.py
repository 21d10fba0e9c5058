"""Plays schemathesis's cases against a gateway: one in memory, or one that listens somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "unit" / "consumer" / "gateway" / "openapi_cases.py"
URL = "ONCEPOOL_TEST_GATEWAY_URL"
"""Of a gateway that listens, with tests.support.gateway.KEY for all that keys are for."""


def play(url: str | None = None) -> None:
    """In a process of its own: what loads schemathesis and makes its cases pays dearly for it."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-o", "addopts=--import-mode=importlib", str(CASES)),
        ],
        cwd=ROOT,
        env=os.environ | ({} if url is None else {URL: url}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^\d\d passed", ran.stdout, re.MULTILINE), ran.stdout
