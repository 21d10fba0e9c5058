"""The thread that serves a client's producer, and who waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from feedback.bell import Bell
from feedback.client.kafka_log import log
from feedback.client.producer import LastingProducer
from feedback.guarded_producer import NESTED

_POLL: Final = 0.1
_GIVING_UP: Final = 1.0
"""Seconds, at most, for the reports of what was given up: they are there at once."""


@dataclass(slots=True)
class _Drain:
    """Somebody waits until `end`, of the monotonic clock, that nothing is on its way."""

    end: float
    over: Bell = field(default_factory=Bell)
    empty: bool = False
    """When it has rung: whether nothing was on its way; False where the thread has ended before."""


class DeliveryThread(threading.Thread):
    """Serves a producer: reports, and all else that it calls back with, come in this thread alone.

    No signal handler ever runs here. One that raises out of a report takes it with it: librdkafka
    reports nothing twice. Whoever waits does so in calls that a signal handler can't leave half
    done, with a lock held.
    """

    def __init__(
        self,
        producer: LastingProducer,
        on_their_way: Callable[[], int],
        served: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        """`on_their_way`: how many messages are not confirmed yet, nor failed.

        `served` is called whenever the producer was served. `give_up` has what
        is on its way reported as failed.
        """
        super().__init__(name="deliveries", daemon=True)
        self._producer = producer
        self._on_their_way = on_their_way
        self._served = served
        self._give_all_up = give_up
        self._asked: SimpleQueue[_Drain] = SimpleQueue()
        self._drains: list[_Drain] = []  # of the thread
        self._end: float | None = None  # set by close(): when what is left is given up
        self._gave_up = False  # of the thread
        self._ended = False  # set before who waits is told so
        # Released at its end. A join() that is interrupted takes the thread for one that has ended.
        self._running = threading.Lock()
        self._running.acquire()
        self.start()

    @property
    def current(self) -> bool:
        """Whether it is this thread that asks: a callback of the producer's does."""
        return threading.current_thread() is self

    def drain(self, timeout: float) -> int:
        """Waits until nothing is on its way. Returns how many messages still are in the end.

        Meanwhile nothing lingers. Raises RuntimeError within a callback.
        """
        if self.current:
            raise RuntimeError(NESTED)
        if self._on_their_way() and timeout > 0:
            drain = _Drain(time.monotonic() + timeout)
            self._asked.put(drain)
            if self._ended:  # perhaps before it could see this
                return self._on_their_way()
            drain.over.wait(timeout)
            if drain.empty:
                return 0
        return self._on_their_way()

    def close(self, timeout: float) -> None:
        """Ends it when nothing is on its way; what still is after `timeout` seconds is given up.

        Waits for that. It ends so, too, where a signal handler ends the wait. Nothing is produced
        any more. Raises RuntimeError within a callback.
        """
        if self.current:
            raise RuntimeError(NESTED)
        self._end = time.monotonic() + timeout
        with self._running:
            pass
        self.join()

    def run(self) -> None:
        """Serves the producer until closed."""
        try:
            while self._goes_on():
                pass
        finally:
            self._ended = True
            self._hear()
            self._tell(empty=False)
            self._running.release()

    def _goes_on(self) -> bool:
        """Serves what comes for a short while; False at the end."""
        self._hear()
        end = self._end
        self._serve(flush=end is not None or bool(self._drains))
        empty = not self._on_their_way()
        now = time.monotonic()
        if empty:
            self._tell(empty=True)
        self._drains = [drain for drain in self._drains if now < drain.end]
        if end is None or (not empty and now < end):
            return True
        if empty or self._gave_up:
            return False
        self._give_up()
        return True

    def _hear(self) -> None:
        while not self._asked.empty():
            self._drains.append(self._asked.get())

    def _tell(self, *, empty: bool) -> None:
        for drain in self._drains:
            drain.empty = empty
            drain.over.ring()
        self._drains = []

    def _serve(self, *, flush: bool) -> None:
        try:
            self._producer.serve(_POLL, flush=flush)
            self._served()
        except BaseException:  # noqa: BLE001  (without this thread no send had an end)
            log.exception("unexpected error while delivery reports are served")
            time.sleep(_POLL)

    def _give_up(self) -> None:
        self._gave_up = True
        self._end = time.monotonic() + _GIVING_UP
        self._give_all_up()
