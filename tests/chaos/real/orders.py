"""Orders to do harm, given by the test and taken by exactly one handler, through a folder.

An order is a file; who renames it has it, so no lock is needed, and what was taken stays readable
after the taker's death. Looking for one costs a handler one system call.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.real.harms import OUT_OF_MEMORY


@dataclass(frozen=True)
class Order:
    """One order that was given."""

    given: Path
    taken: Path

    def evidence(self, timeout: float) -> dict[str, Any] | None:
        """What its taker wrote before the harm; None, and withdrawn, where nobody took it."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if (found := self._read()) is not None:
                return found
            time.sleep(0.02)
        with contextlib.suppress(FileNotFoundError):
            self.given.unlink()
            return None
        return self._read()

    def _read(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self.taken.read_text().splitlines()[1]))
        except (FileNotFoundError, IndexError, ValueError):
            return None


class Orders:
    """The test's side: one order for each point at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given = 0

    def give(self, point: str, harm: str) -> Order:
        """`harm`: a word that `harms.do` knows, with its argument."""
        self._given += 1
        draft = self._folder / f"draft-{self._given}"
        draft.write_text(f"{self._given} {harm}\n")
        given = self._folder / point
        draft.replace(given)
        return Order(given, self._folder / f"taken-{self._given}")

    def ran_out_of_memory(self, pid: int) -> bool:
        """Whether this process has noted that it had no memory left."""
        return (self._folder / OUT_OF_MEMORY.format(pid)).exists()


class Obedience:
    """The handler's side."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def take(self, point: str, about: str) -> str | None:
        """The harm to do here, once it is written down who does it; mostly None."""
        mine = f"{self._folder}/mine-{os.getpid()}"
        try:
            os.rename(f"{self._folder}/{point}", mine)  # noqa: PTH104 - each request comes by
        except FileNotFoundError:
            return None
        number, harm = Path(mine).read_text().split(maxsplit=1)
        evidence = json.dumps({"pid": os.getpid(), "about": about, "at": time.time()})
        Path(mine).write_text(f"{number} {harm}{evidence}\n")
        os.rename(mine, f"{self._folder}/taken-{number}")  # noqa: PTH104
        return harm.strip()
