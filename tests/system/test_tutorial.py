"""docs/tutorial.md, entered into a shell as its reader does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stack.places import free_port
from tests.support.tutorial import Shell, steps

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BIN = Path(sys.executable).parent
PORTS = ("9100", "8080")
OURS = "ONCEPOOL_"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """That of a reader with the project's programs, and a folder for the services."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    reader = {
        **kept,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "ONCEPOOL_STACK_DATA": str(tmp_path / "services"),
    }
    yield reader
    down = [str(BIN / "oncepool"), "stack", "down", "--delete"]
    subprocess.run(down, env=reader, check=True, capture_output=True, timeout=120)
    for process in psutil.process_iter(["cwd"]):  # where a step failed
        if (process.info["cwd"] or "").startswith(str(tmp_path)):
            process.send_signal(signal.SIGKILL)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_does_what_it_says(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
    with Shell(folder, environment) as shell:
        for step in steps(PAGE.read_text("utf-8")):
            script = step.script
            for port, free in ports.items():
                script = script.replace(port, free)
            output = shell.enter(script)
            assert not step.missing(output), f"{step.missing(output)} not in\n{output}"


def _free_ports(number: int) -> list[str]:
    taken: set[int] = set()
    return [str(free_port(taken)) for _ in range(number)]
