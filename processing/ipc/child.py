"""A child process of the main process: a worker or the maintenance process.

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

from processing.ipc.channel import Channel, ChannelClosed, socket_pair
from processing.ipc.frames import Configure
from processing.ipc.progress import ProgressSlot

_ours: set[int] = set()
"""Processes whose end a `Child` has not taken note of yet."""


class Child:
    """One process, its channel and, where it has one, its slot."""

    def __init__(self, module: str, settings: dict[str, Any], *, with_slot: bool = False) -> None:
        """Raises OSError where the process, or what it needs, can't be had."""
        with contextlib.ExitStack() as undo:
            ours, theirs = socket_pair()
            undo.callback(ours.close)
            self.channel = Channel(ours)
            self.slot: ProgressSlot | None = None
            passed = [theirs.fileno()]
            with contextlib.ExitStack() as given_away:
                given_away.callback(theirs.close)
                if with_slot:
                    self.slot, descriptor = ProgressSlot.create()
                    undo.callback(self.slot.close)
                    given_away.callback(os.close, descriptor)
                    passed.append(descriptor)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, str(os.getpid()), *map(str, passed)],
                    pass_fds=passed,
                    stdin=subprocess.DEVNULL,
                    env=_environment(),
                    # A group of its own: what user code has started ends with it.
                    process_group=0,
                )
            undo.pop_all()
        self.pid = self._process.pid
        self._sent: set[int] = set()
        """Signals that it was sent from here."""
        _ours.add(self.pid)
        self.sentinel = _sentinel(self.pid)
        """A descriptor that is readable once the process has ended; None where there is none."""
        with contextlib.suppress(ChannelClosed):  # its end will be seen
            self.channel.send(Configure(settings))

    def ended(self) -> bool:
        """Whether the process has ended. It is not reaped before `wait`: see `end_group`."""
        if self._process.returncode is not None:
            return True
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.pid, look) is not None
        except ChildProcessError:  # nobody keeps it for us: SIGCHLD was ignored by who started us
            return True

    def signal(self, number: int) -> None:
        """Sends a signal, to this process only; nothing where it has ended.

        Not by Popen, which would reap one that has just died: then its group could not be ended.
        """
        if self._process.returncode is None:  # a pid that was reaped may be another's
            self._sent.add(number)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end_group(self) -> None:
        """Ends what the process has started and left behind; call it before it is reaped."""
        if self._process.returncode is None:  # a pid that was reaped may be another's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> bool:
        """Waits until the process has ended, at most `timeout` seconds; False when it has not."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        _ours.discard(self.pid)
        return True

    @property
    def cause(self) -> str:
        """How the process ended, in words."""
        code = self._process.returncode
        if code is None:
            return "runs"
        if code < 0:
            # Real-time signals have no names.
            known = -code in set(signal.Signals)
            return f"signal {signal.Signals(-code).name if known else -code}"
        return f"exit code {code}"

    @property
    def was_ended_here(self) -> bool:
        """Whether a signal that it was sent from here has ended the process."""
        code = self._process.returncode
        return code is not None and -code in self._sent

    def close(self) -> None:
        """Lets go of what belonged to the process, after it has ended."""
        _ours.discard(self.pid)
        self.channel.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
        if self.slot is not None:
            self.slot.close()


def reap_orphans() -> None:
    """Takes note of the end of processes that are no `Child`: they fell to this one.

    As PID 1 of a container it is the parent of whatever a worker's children have left behind: they
    would fill the table of processes.
    """
    with contextlib.suppress(ChildProcessError):  # there is no child at all
        while (end := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if end.si_pid in _ours:
                return  # it is waited for by its number, and the others come next time
            os.waitpid(end.si_pid, 0)


def _sentinel(pid: int) -> int | None:
    """A descriptor of the process, where the system has such and one is left."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _environment() -> dict[str, str]:
    """The environment of a child: this process's, with its import path first.

    A console script has its own folder first on the path, not the working directory, from which
    the app is imported.
    """
    path = [str(Path.cwd()), *(entry for entry in sys.path if entry)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
