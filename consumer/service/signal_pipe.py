"""Signals that ask for the end: kept by name, and made readable for whoever waits in a selector."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

from processing.ipc.end_signals import handled


class Signals:
    """The handlers of one process.

    They only set a flag and wake the loop. As PID 1 of a container a process without a handler is
    not ended by these signals at all, so they are installed before anything else is done.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        self._waiting: list[str] = []
        # Written by the interpreter as the signal comes, also while the main thread is inside a
        # library call and no Python code of it runs: so a watchdog sees what nobody takes.
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._handle) for number in handled()}

    def fileno(self) -> int:
        """A descriptor that is readable once a signal has come."""
        return self._reader

    def take(self) -> list[str]:
        """Names of the signals that came since the last call, in their order."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
        # After the pipe: a signal in between wakes once for nothing, instead of being missed.
        came, self._waiting = self._waiting, []
        return came

    def ignore(self) -> None:
        """From now on they change nothing: the process is ending, and its exit code stands."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Puts back the handlers that were there."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._waiting.append(signal.Signals(number).name)
