"""Consumers as processes of their own, and what their logs tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from feedback.errors import OncepoolError

APP = "examples.shop.app:app"
CODE = Path(__file__).parents[2]
"""What has to be on the path of a consumer to import the shop."""
STOP = 60.0
SHOWN = 2000
"""Characters of a log in an error."""
LOSING = frozenset({"not ours any more", "put out of the group", "undecided", "fatal error"})
"""Causes of a drop after which the offset may stand all the same. Others are read again."""

# The kernel ends the consumer when this process ends, however it ends; exec keeps that.
LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-m", "consumer", "run", sys.argv[2]])
"""


class DemoFailed(OncepoolError):
    """The demo could not be played; the message says what did not happen and where to look."""


class Instance:
    """One consumer: `python -m consumer run`, and its log. Started in the main thread."""

    def __init__(self, name: str, environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
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
        self._log = folder / f"{name}.log"
        self._read = 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(os.getpid()), APP],
                cwd=folder,  # no oncepool.toml of somebody else's is found there
                env=environment_with(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which ends it in order
            )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its main process runs."""
        return self._process.poll() is None

    @property
    def does(self) -> str:
        """What it does, in words."""
        if not self.alive:
            return "killed" if self._process.returncode == -signal.SIGKILL else "ended"
        return f"runs, {len(self.workers)} workers" if self.joined else "starts"

    def look(self) -> None:
        """Reads what was logged since the last look. Raises DemoFailed where it ended by itself."""
        code = self._process.poll()  # before the log: what it wrote by then is read
        with self._log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._take(line)
        clean = (None, 0, -signal.SIGKILL, *((-signal.SIGTERM,) if self.finished else ()))
        if code not in clean:
            raise DemoFailed(f"{self.name} ended with code {code}; its log ends:\n{self._tail()}")

    def kill_worker(self) -> int:
        """Ends a worker with SIGKILL; its pid."""
        pid = min(self.workers.items())[1]
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill(self) -> None:
        """Ends its main process with SIGKILL; the workers end with it."""
        self._process.kill()
        self._process.wait()
        self.look()

    def stop(self) -> None:
        """Asks it to drain and end; asked again, it leaves to others what it has not started."""
        self._process.terminate()

    def ended(self) -> None:
        """Waits for its end. Raises DemoFailed where it is not a clean one."""
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            raise DemoFailed(
                f"{self.name} did not end within {STOP:g} s; its log ends:\n{self._tail()}"
            ) from None
        self.look()

    def close(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.wait()

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

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-SHOWN:]


def environment_with(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with no settings of Oncepool but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEPOOL_")}
    path = os.pathsep.join(filter(None, (str(CODE), kept.get("PYTHONPATH"))))
    return {**kept, **settings, "PYTHONPATH": path}
