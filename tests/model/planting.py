"""Plants a bug in a copy of the project, and runs a command there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLEARING_UP = 60.0
"""Seconds that a command has for that once it was interrupted."""

_times = count(1)


@dataclass(frozen=True, slots=True)
class Bug:
    """One rule of the product, broken."""

    name: str
    file: str
    old: str
    new: str

    def found(self, root: Path) -> int:
        """How often its place is there; it can be planted where that is once."""
        return (root / self.file).read_text().count(self.old)


def listed(name: str, what: str) -> list[dict[str, Any]]:
    """The entries of a list that lies beside this file."""
    entries: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name(name).read_text())[what]
    return entries


def interrupt(process: subprocess.Popen[str]) -> None:
    """Has a command clear up and end."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=CLEARING_UP)
    except subprocess.TimeoutExpired:
        process.kill()


class Tree:
    """A copy of the project in which bugs are planted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listing = ["git", "ls-files", "-co", "--exclude-standard"]
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in done.stdout.splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    @contextmanager
    def planted(self, bug: Bug) -> Iterator[None]:
        """With the bug, and without it afterwards."""
        path = self._folder / bug.file
        sound = path.read_text()
        self._write(path, sound.replace(bug.old, bug.new))
        try:
            yield
        finally:
            self._write(path, sound)

    def run(
        self, command: Sequence[str], more: Mapping[str, str], timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on this copy, with variables beside those that are there.

        One that takes longer than `timeout` is interrupted, so that it can clear up. Raises
        TimeoutExpired then.
        """
        environ = {**os.environ, "PYTHONPATH": str(self._folder), **more}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=self._folder, env=environ, stdout=pipe, stderr=pipe, text=True,
            errors="replace",
        ) as process:  # fmt: skip
            try:
                said, noted = process.communicate(timeout=timeout)
            except BaseException:
                interrupt(process)
                raise
        return subprocess.CompletedProcess(command, process.returncode, said, noted)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        # Compiled files go by seconds: no two versions have the same.
        moment = time.time() + 2 * next(_times)
        os.utime(path, (moment, moment))


def say(line: str) -> None:
    """Tells it at once: a whole run takes long."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
