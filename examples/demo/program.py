"""A program that the demo plays with: a process of its own, and its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from feedback.errors import OncepoolError

CODE = Path(__file__).parents[2]
"""What has to be on the path of a program to import the shop."""
STOP = 60.0
SHOWN = 2000
"""Characters of a log in an error."""

# The kernel ends the program when this process ends, however it ends; exec keeps that.
LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])
"""


class DemoFailed(OncepoolError):
    """The demo could not be played; the message says what did not happen and where to look."""


class Program:
    """One process: `python -m ...`. Started in the main thread."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(os.getpid()), *command],
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
    def clean(self) -> tuple[int, ...]:
        """Exit codes that are no reason to worry: 0, and what the demo did to it."""
        return (0, -signal.SIGKILL)

    @property
    def does(self) -> str:
        """What it does, in words."""
        if self.alive:
            return "runs"
        return "killed" if self._process.returncode == -signal.SIGKILL else "ended"

    def look(self) -> None:
        """Raises DemoFailed where it ended by itself."""
        code = self._process.poll()  # before the log: what it wrote by then is read
        self._read_log()
        if code is not None and code not in self.clean:
            raise DemoFailed(f"{self.name} ended with code {code}; its log ends:\n{self._tail()}")

    def kill(self) -> None:
        """Ends its main process with SIGKILL; what it has started ends with it."""
        self._process.kill()
        self._process.wait()
        self.look()

    def hold(self) -> None:
        """Stops its main process where it is."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets what was held go on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Asks it to end."""
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

    def _read_log(self) -> None:
        """Takes what is new in the log, where that matters."""

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-SHOWN:]


def environment_with(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with no settings of Oncepool but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEPOOL_")}
    path = os.pathsep.join(filter(None, (str(CODE), kept.get("PYTHONPATH"))))
    return {**kept, **settings, "PYTHONPATH": path}
