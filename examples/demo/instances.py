"""Consumers as processes of their own, and what their logs tell."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from examples.demo.program import Program

APP = "examples.shop.app:app"
LOSING = frozenset({"not ours any more", "put out of the group", "undecided", "fatal error"})
"""Causes of a drop after which the offset may stand all the same. Others are read again."""


class Instance(Program):
    """One consumer: `oncepool run`."""

    def __init__(self, name: str, environment: Mapping[str, str], folder: Path) -> None:
        self.joined = False
        """Partitions were assigned to it."""
        self.stopping = False
        """It was asked to end and has heard it."""
        self.finished = False
        """It has drained: a further signal may find nobody who handles it."""
        self.id = ""
        """Its own name for itself, which its commits carry."""
        self.workers: dict[int, int] = {}
        """Number -> pid of workers that are ready."""
        self.worker_deaths = 0
        self.suspects = 0
        """Records that workers had in hand when they died."""
        self.dropped = 0
        """Records that it gave up while their commit was unclear; known when it has ended."""
        self._read = 0
        super().__init__(name, ["consumer", "run", APP], environment, folder)

    @property
    def clean(self) -> tuple[int, ...]:
        """As of every program; told twice to stop, the signal may end it once it has drained."""
        return (*super().clean, *((-signal.SIGTERM,) if self.finished else ()))

    @property
    def does(self) -> str:
        """What it does, in words."""
        if not self.alive:
            return super().does
        return f"runs, {len(self.workers)} workers" if self.joined else "starts"

    def kill_worker(self) -> int:
        """Ends a worker with SIGKILL; its pid."""
        pid = min(self.workers.items())[1]
        os.kill(pid, signal.SIGKILL)
        return pid

    def _read_log(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            entry: dict[str, Any] = orjson.loads(line)
        except ValueError:
            return  # a traceback, which the tail shows where it matters
        match entry.get("message"):
            case "running":
                self.id = entry["instance"]
            case "signal":
                self.stopping = True
            case "partitions assigned":
                self.joined = self.joined or entry["n"] > 0
            case "worker ready":
                self.workers[entry["worker"]] = entry["pid"]
            case "worker died" | "worker was killed":
                self.suspects += entry["suspects"]
            case "worker ended":
                self.workers.pop(entry["worker"], None)
                self.worker_deaths += "SIGKILL" in entry["cause"]
            case "ended":
                self.finished = True
                counts = Counter(entry["counts"])
                self.dropped = sum(counts[f"drop:{cause}"] for cause in LOSING)
