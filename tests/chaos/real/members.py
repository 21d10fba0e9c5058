"""The instances of a group under chaos: started, looked into, stopped and killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[3]
READ_AGAIN = "reading again what was not finished"
CODES = frozenset({0, 3})
"""Exit codes of an instance that was told to stop; 3: something had to be killed."""
FATAL = 1
"""Exit code of one that cannot go on, and says why."""


class ChaosMember:
    """One instance: its main process, and its log, one JSON object a line."""

    def __init__(self, number: int, environment: dict[str, str], folder: Path) -> None:
        self.number = number
        self.log = folder / f"instance-{number}.log"
        self.stopped_at = 0.0
        """When it was told to stop, by the clock that nobody can set."""
        self.how = ""
        """`killed` or `stopped`, once somebody has done it."""
        self.allowed = CODES
        """Exit codes that it may have once it was stopped."""
        self._read, self._name = 0, ""
        self._said, self._lock = Counter[str](), threading.Lock()
        self.last: deque[dict[str, Any]] = deque(maxlen=5)
        """Lines of its log, once something was asked of it."""
        self.read_again: list[tuple[int, int, int]] = []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.real.instance"],
                cwd=ROOT, env={**os.environ, **environment}, stderr=log, stdout=log,
                start_new_session=True,  # as under a service manager: its own share of the machine
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def _look(self) -> None:
        """Reads what it has logged since the last look."""
        with self._lock, self.log.open("rb") as log:
            log.seek(self._read)
            whole = log.read().rpartition(b"\n")[0]
            self._read += len(whole) + bool(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError):
                    said = dict(json.loads(line))
                    self._said[said.get("message", "")] += 1
                    self.last.append(said)
                    if said.get("message") == READ_AGAIN:
                        gap = (said["partition"], said["mark"], said["committed"])
                        self.read_again.append(gap)
                    self._name = self._name or said.get("instance", "")

    def said(self, message: str) -> int:
        """How many lines have this message."""
        self._look()
        return self._said[message]

    def all_said(self) -> Counter[str]:
        self._look()
        return self._said

    @property
    def name(self) -> str:
        """Its id in commits' tokens."""
        self._look()
        return self._name

    def children(self, program: str = "processing.worker") -> list[int]:
        """Pids of its workers, or of its maintenance process."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    if any(program in word for word in child.cmdline()):
                        found.append(child.pid)
        return found

    def kill(self) -> None:
        self.how = "killed"
        self.process.kill()
        self.process.wait(30)

    def stop(self, timeout: float = 60) -> int:
        """Its exit code. Raises AssertionError, and kills it, where it does not end."""
        self.how, self.stopped_at = "stopped", time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"instance {self.number} was told to stop and did not within {timeout:g} s"
            ) from None

    def wrong_end(self) -> str:
        """What is wrong with how it ended; "" where nothing is, or it lives."""
        if self.alive or self.how == "killed":
            return ""
        code = self.process.returncode
        if self.how == "stopped" and code in self.allowed:
            return ""
        why = "when it was told to stop" if self.how else "by itself"
        return f"instance {self.number} ended with {code} {why}: {list(self.last)}"

    def wrote(self, word: str) -> bool:
        """Whether a line of its log has this word, whatever part of it that is."""
        return word in self.log.read_text(errors="replace")


class Members:
    """All instances of a run, the dead ones too."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment, self._folder = environment, folder
        self.all: list[ChaosMember] = []
        self.wrong: list[str] = []
        """What faults saw that must not be."""
        self.lock = threading.RLock()

    def start(self, **more: str) -> ChaosMember:
        with self.lock:
            member = ChaosMember(len(self.all), {**self.environment, **more}, self._folder)
            self.all.append(member)
        return member

    @property
    def alive(self) -> list[ChaosMember]:
        return [member for member in self.all if member.alive]

    @property
    def serving(self) -> list[ChaosMember]:
        """Those that have joined the group."""
        return [m for m in self.alive if m.said("partitions assigned") and not m.how]

    def pick(self, chance: random.Random) -> ChaosMember | None:
        serving = self.serving
        return chance.choice(serving) if serving else None

    def worker(self, chance: random.Random) -> tuple[ChaosMember, int] | None:
        """A worker of some instance, with that instance."""
        found = [(m, pid) for m in self.serving for pid in m.children()]
        return chance.choice(found) if found else None

    def said(self, message: str) -> int:
        """How many lines of all logs have this message."""
        return sum(member.said(message) for member in self.all)

    def all_said(self) -> Counter[str]:
        """Lines of all logs, by message."""
        return sum((member.all_said() for member in self.all), Counter[str]())

    def unexpected_ends(self) -> list[str]:
        """Instances that ended without having been told to, or not as they should, and the like."""
        return [*filter(None, (member.wrong_end() for member in self.all)), *self.wrong]


def until(condition: Any, timeout: float) -> bool:
    """Whether the condition became true within so many seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
