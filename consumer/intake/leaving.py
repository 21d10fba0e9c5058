"""Leaves the group in a thread of its own: that may hang while brokers are away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from processing.logs import BoundLogger

COMPLAIN_EVERY: Final = 10.0
"""Seconds between two lines about a thread that can't be started."""


class Leaving:
    """Of one client, which is that thread's from then on."""

    def __init__(
        self, close: Callable[[], None], log: BoundLogger, clock: Callable[[], float]
    ) -> None:
        self._close = close
        self._log = log
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._complained = float("-inf")

    def begin(self) -> None:
        """Where the system has no thread left nothing has begun: it is to be called again."""
        thread = threading.Thread(target=self._close, name="leave", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if (now := self._clock()) - self._complained > COMPLAIN_EVERY:
                self._complained = now
                self._log.warning("the group can't be left yet", error=str(error))
        else:
            self._thread = thread

    @property
    def begun(self) -> bool:
        return self._thread is not None

    @property
    def over(self) -> bool:
        """The client is closed."""
        return self._thread is not None and not self._thread.is_alive()
