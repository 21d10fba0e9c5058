"""Reading result records: what other systems subscribe to."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from feedback.broker_probe import in_callback
from feedback.client.own_calls import OwnCalls
from feedback.client.result import ReadMessage, Result
from feedback.client.result_source import ResultSource
from feedback.errors import ResultsFailed
from feedback.guarded_producer import NESTED

_SLICE: Final = 0.2

P = ParamSpec("P")
T = TypeVar("T")


class Results:
    """Result records, one after the other, without an end. A context manager; close it after use.

    At least once: a record may come twice, and two records of one request may change places; the
    one with the later `at` is how it stands. With a `group`, a record counts as handled when the
    next one is asked for, or with the end of the `with` block, but where an error ends it; without
    such a block with close(). For one thread; close() may come from another, from a signal handler,
    and from a callback of the Kafka client.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        topic: str,
        group: str | None,
        *,
        from_beginning: bool,
        closed: Callable[[Results], None],
        calls: OwnCalls | None = None,
    ) -> None:
        """`calls`: where what asks the consumer counts as one."""
        self._on_close = closed
        self._calls = calls or OwnCalls()
        # Whatever the consumer is asked is asked with the lock; it is taken again by a signal
        # handler, or a callback of the client, that runs in the middle of that.
        self._lock = threading.RLock()
        self._asking = False  # guarded by _lock: the consumer is asked something
        self._closed = False  # set without the lock: nothing comes any more
        self._ended = False  # guarded by _lock: the consumer is closed
        self._entered = False  # a `with` block tells what became of the last record
        self._last: Any = None  # the message that is being handled
        self._late: BaseException | None = None  # to be told after what was read before it
        self._source = ResultSource(kafka, topic, group, from_beginning=from_beginning)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Result:
        result = self.poll(math.inf)
        if result is None:
            raise StopIteration
        return result

    def poll(self, timeout: float) -> Result | None:
        """The next record; None where none comes within `timeout` seconds, or when closed.

        Raises ResultsFailed where waiting does not help.
        """
        end = time.monotonic() + timeout
        while True:
            # For a short while, so that close() is not kept waiting.
            result = self._ask(self._next, max(0.0, min(_SLICE, end - time.monotonic())))
            if result is not None or self._closed or time.monotonic() >= end:
                return result

    def close(self) -> None:
        """Ends the iteration, also one in another thread.

        Where it interrupts a call of its own thread, that one closes when it ends: at once. In a
        callback of the Kafka client it returns at once, and a thread closes. While a record is
        being handled in a `with` block, who asks for the next one closes, or the block's end.
        """
        self._closed = True
        if in_callback():
            threading.Thread(target=self._end_idle, name="closing", daemon=False).start()
        else:
            self._end_idle()

    def forked(self) -> None:
        """Called in a process that was forked: nothing comes there any more."""
        self._lock = threading.RLock()  # a thread that was not copied may have held it
        self._closed = self._ended = True
        self._source.forked()

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._calls.lock, self._lock:  # who asks is first: what was read before is handled
            if error is not None:
                self._last = None  # it may be half done: it comes again
            self._entered = False
        self.close()

    @property
    def closed(self) -> bool:
        """Whether nothing comes any more."""
        return self._closed

    def take(self, timeout: float, most: int) -> list[ReadMessage]:
        """The next records in their order, for `turn_to`; waits for the first `timeout` seconds.

        All that was taken before has been turned to, or is to `come_again`. Raises ResultsFailed.
        """
        return self._ask(self._take, timeout, most)

    def turn_to(self, taken: ReadMessage) -> Result | None:
        """From now on this record is being handled; the one before it is."""
        self._handled()
        self._last = taken.message
        if taken.result is None:
            self._handled()
        return taken.result

    def come_again(self) -> None:
        """What was not turned to is read again."""
        self._source.read_again()

    def _ask(self, what: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls what asks the consumer. What an error ends has given out nothing."""
        try:
            return self._ask_alone(what, *args, **kwargs)
        except ResultsFailed:
            raise
        except BaseException:
            # Of a signal handler, say: what was in hand is gone with it, and is read again.
            self._last = None
            self._source.read_again()
            raise

    def _ask_alone(self, what: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Closes afterwards, where that was wanted meanwhile."""
        with self._calls.lock, self._lock:
            if self._asking:
                raise RuntimeError(NESTED)
            try:
                self._asking = True
                return what(*args, **kwargs)
            finally:
                self._asking = False
                if self._closed:
                    self._end_idle()

    def _end_idle(self) -> None:
        """Closes the consumer, but for as long as it is asked, or what was read is worked on."""
        with self._calls.lock, self._lock:
            worked_on = self._entered and self._last is not None
            if not self._asking and not worked_on:
                self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._handled()
        self._source.close()
        self._on_close(self)

    def _next(self, timeout: float) -> Result | None:
        self._handled()
        if self._closed:
            return None
        self._source.prepare()
        read = self._source.read(timeout)
        if read is None or self._closed:
            return None  # what nobody gets any more is not handled
        return self.turn_to(read)

    def _take(self, timeout: float, most: int) -> list[ReadMessage]:
        taken: list[ReadMessage] = []
        self._handled()
        if self._closed:
            return taken
        if (late := self._late) is not None:
            self._late = None
            raise late
        self._source.prepare()
        try:
            while len(taken) < most and (read := self._source.read(timeout)) is not None:
                taken.append(read)
                timeout = 0.0
        except BaseException as error:
            if not taken:
                raise
            self._late = error
        return taken

    def _handled(self) -> None:
        message, self._last = self._last, None
        if message is not None:
            self._source.handled(message)
