"""Processes that a handler forks: they end where its code does, and never go on as the worker."""

from __future__ import annotations

import os
import signal
import traceback
from typing import NoReturn

from processing.ipc.standard_streams import exit_at_once


class ForkGuard:
    """Knows whether this is the process that it was made in."""

    def __init__(self) -> None:
        self.forked = False
        """This is another process than the worker: it shares connection and channel with it."""

    def watch(self) -> None:
        """From now on a fork is noticed."""
        os.register_at_fork(after_in_child=self._note)

    def _note(self) -> None:
        self.forked = True
        # The worker's ways to end are not its own: whoever forks expects it to end at a signal.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self, error: BaseException | None = None) -> None:
        """Does not return in a forked process; `error` is what the handler's code raised there."""
        if self.forked:
            self._leave(error)

    def _leave(self, error: BaseException | None) -> NoReturn:
        """Ends a forked process as the interpreter would at the end of its program."""
        code = 0
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            traceback.print_exception(error)
            code = 1
        exit_at_once(code)


FORK_GUARD = ForkGuard()
"""That of this process; a worker has it watch."""
