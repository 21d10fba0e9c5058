"""Closing a client: who does that, and who waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from feedback.broker_probe import in_callback
from feedback.client.delivery import Deliveries
from feedback.client.forks import FORKED
from feedback.client.own_calls import OwnCalls
from feedback.errors import CLOSED, DeliveryFailed

log = logging.getLogger("oncepool.client")


class Closing:
    """Of one client. Whoever comes first closes; others wait for that, and find nothing left to do.

    But for who interrupts a call of the client's own thread, and for callbacks of the Kafka client:
    what they would wait for may be waiting for them. They have a thread close.
    """

    def __init__(
        self, calls: OwnCalls, deliveries: Deliveries, end: Callable[[float], None]
    ) -> None:
        """`end` ends the client's parts; where it raises, the next close() calls it again."""
        self._calls = calls
        self._deliveries = deliveries
        self._end = end
        self._lock = threading.Lock()  # held by who closes
        self._ended = False  # guarded by _lock
        self._asked: float | None = None
        """The time-out of who was told, in the middle of a close(), that it is on its way."""
        self.reason = ""
        """Why the client takes nothing any more; empty as long as it does."""

    def refuse(self) -> None:
        """From now on the client takes nothing."""
        self.reason = self.reason or CLOSED

    def forked(self) -> None:
        """Called in a process that was forked: nothing is closed there."""
        self.reason = FORKED

    def close(self, timeout: float) -> bool:
        """Whether all is closed when this returns; where not, a thread does it, or another process.

        What the broker has not confirmed within `timeout` seconds is given up; `deliveries` know.
        """
        if self.reason == FORKED:
            return False
        if self._calls.running or self._deliveries.serving or in_callback():
            self._close_aside(timeout)
            return False
        with self._calls.lock:
            try:
                self._close(timeout)
            except BaseException as error:  # of Ctrl-C or sys.exit in a signal handler, say
                if self._asked is None:
                    self._log_unfinished(error)
                else:
                    self.go_on(self._asked)
                raise
        return True

    def go_on(self, timeout: float) -> None:
        """A thread closes, or waits for who does, and logs what failed.

        The end of the program waits for it.
        """

        def close() -> None:
            try:
                self._close(timeout)
            finally:
                if (failed := self._deliveries.failed()) is not None:
                    log.error("closed while nobody waited for it: %s", failed)

        if self.reason != FORKED:
            threading.Thread(target=close, name="closing", daemon=False).start()

    def tell(self, failed: DeliveryFailed, error: BaseException | None) -> None:
        """Tells at the end of a block what failed: raises it, where no `error` ends the block.

        An error says more; but nobody may print it, with what is noted on it. So it is logged, too.
        """
        if error is None:
            raise failed
        error.add_note(str(failed))
        log.error("closed as %s ended the block: %s", type(error).__name__, failed)

    def _log_unfinished(self, error: BaseException) -> None:
        """Perhaps nobody closes once more, who would be told."""
        ended = f"{type(error).__name__} ended close()"
        if (failed := self._deliveries.failed()) is not None:
            log.error("%s: %s", ended, failed)
        if pending := self._deliveries.drain(0.0):
            log.error("%s: the brokers have not confirmed %d messages yet", ended, pending)

    def _close(self, timeout: float) -> None:
        self.refuse()
        with self._lock:
            if not self._ended:
                self._end(timeout)
                self._ended = True

    def _close_aside(self, timeout: float) -> None:
        if self.reason:  # who has set it closes
            self._asked = timeout
        else:
            self.go_on(timeout)
            self.refuse()
