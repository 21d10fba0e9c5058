"""A child process of the main process: a worker or the clerk.

Started as ``python -m <module>`` rather than with multiprocessing: it shares nothing with the main
process but one socket and, for workers, the slot. Everything it has to know comes as the first
frame, so no secret stands in its command line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from processing.ipc.channel import Channel, socket_pair
from processing.ipc.frames import Configure
from processing.ipc.progress import Slot


class Child:
    """One process, its channel and, where it has one, its slot."""

    def __init__(self, module: str, settings: dict[str, Any], *, with_slot: bool = False) -> None:
        ours, theirs = socket_pair()
        self.channel = Channel(ours)
        self.slot: Slot | None = None
        passed = [theirs.fileno()]
        if with_slot:
            self.slot, descriptor = Slot.create()
            passed.append(descriptor)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(os.getpid()), *map(str, passed)],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                env=_environment(),
            )
        finally:
            theirs.close()
            for descriptor in passed[1:]:
                os.close(descriptor)
        self.pid = self._process.pid
        self.sentinel: int | None = None
        """A descriptor that is readable once the process has ended; None where there is none."""
        if hasattr(os, "pidfd_open"):
            self.sentinel = os.pidfd_open(self.pid)
        self.channel.send(Configure(settings))

    def ended(self) -> bool:
        """Whether the process has ended; it is reaped then."""
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Sends a signal, to this process only: a pid that was reaped is not signalled."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def wait(self, timeout: float) -> bool:
        """Waits until the process has ended, at most `timeout` seconds; False when it has not."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def cause(self) -> str:
        """How the process ended, in words."""
        code = self._process.returncode
        if code is None:
            return "runs"
        if code < 0:
            return f"signal {signal.Signals(-code).name}"
        return f"exit code {code}"

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal, None while it runs."""
        return self._process.returncode

    def close(self) -> None:
        """Lets go of what belonged to the process, after it has ended."""
        self.channel.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
        if self.slot is not None:
            self.slot.close()


def _environment() -> dict[str, str]:
    """The environment of a child: this process's, with its import path first.

    A console script has its own folder first on the path, not the working directory, from which
    the app is imported.
    """
    path = [str(Path.cwd()), *(entry for entry in sys.path if entry)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
