"""The tutorial as a play: blocks that are entered into a shell, and what has to come out."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Step:
    """A `sh` block, and the lines of the `text` blocks that follow it."""

    script: str
    lines: list[str] = field(default_factory=list)

    def missing(self, output: str) -> list[str]:
        """The lines that `output` does not have in their order; `...` stands for anything."""
        rest = iter(output.splitlines())
        return [line for line in self.lines if not any(_shown(line, out) for out in rest)]


def steps(page: str) -> list[Step]:
    """The steps of a page. Blocks of other languages are for its reader alone.

    Raises ValueError for a `text` block before the first `sh` block.
    """
    found: list[Step] = []
    for language, block in FENCE.findall(page):
        if language == "sh":
            found.append(Step(block))
        elif language == "text":
            if not found:
                raise ValueError("a text block says what a sh block before it prints")
            found[-1].lines += block.splitlines()
    return found


def _shown(line: str, output: str) -> bool:
    parts = [re.escape(part.strip()) for part in line.split("...")]
    return re.fullmatch(".*".join(parts), output.strip()) is not None


class Shell:
    """One bash that gets block after block; ends where a command fails. For `with`."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-e"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def enter(self, script: str) -> str:
        """What it prints, until it is through. Raises AssertionError where a command fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        end = "--- the block is through"
        self._process.stdin.write(f"{script}\nprintf '\\n%s\\n' '{end}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == end:
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"a command failed in\n{script}\nafter\n{''.join(lines)}")
