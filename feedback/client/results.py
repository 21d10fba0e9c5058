"""Reading result records: what other systems subscribe to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from feedback.broker_probe import LOST, BrokerProbe, in_callback
from feedback.client.forks import never_free
from feedback.client.kafka_log import OutageLog
from feedback.client.own_calls import OwnCalls
from feedback.client.result import ReadMessage, Result
from feedback.client.result_consumer import connect, properties
from feedback.client.result_positions import ResultPositions, hopeless
from feedback.errors import ConfigurationError, ResultsFailed
from feedback.guarded_producer import NESTED

log = logging.getLogger("oncepool.kafka")

_SLICE: Final = 0.2
_PAUSE: Final = 1.0

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
        self._topic = topic
        self._group = group
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
        self._anew = False  # the consumer is another one, which reads nowhere yet
        self._adrift = False  # where the consumer stands is not where was read on last
        self._assigned: list[TopicPartition] | None = None  # and not known where to read on there
        self._ask_at = 0.0
        self._outages = OutageLog()
        self._probe = BrokerProbe(properties(kafka, group))
        self._consumer = connect(self._probe, self._outages)
        try:
            self._begin(group, from_beginning=from_beginning)
        except KafkaException as error:
            self._consumer.close()
            raise ResultsFailed(topic, error.args[0].str()) from None
        except BaseException:
            self._consumer.close()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Result:
        while True:
            result = self.poll(_SLICE)
            if result is not None:
                return result
            if self._closed:
                raise StopIteration

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
        never_free(self._consumer)

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

        Raises ResultsFailed.
        """
        return self._ask(self._take, timeout, most)

    def turn_to(self, taken: ReadMessage) -> Result | None:
        """From now on this record is being handled; the one before it is."""
        self._handled()
        self._last = taken.message
        return taken.result

    def _ask(self, what: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls what asks the consumer; closes, where that was wanted meanwhile."""
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
        self._consumer.close()
        self._on_close(self)

    def _next(self, timeout: float) -> Result | None:
        self._handled()
        if self._closed:
            return None
        read = self._read(timeout)
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
        try:
            while len(taken) < most and (read := self._read(timeout)) is not None:
                taken.append(read)
                timeout = 0.0
        except BaseException as error:
            if not taken:
                raise
            self._late = error
        return taken

    def _read(self, timeout: float) -> ReadMessage | None:
        if self._probe.lost(self._consumer):
            self._begin_anew()
        if self._anew:
            self._take_over()
        if self._adrift:
            self._go_back()
        self._read_on()
        try:
            message = self._consumer.poll(timeout)
        except BaseException:
            # Of a signal handler, say: a message that the client had in hand is gone with it.
            self._adrift = True
            raise
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if hopeless(error):
                raise ResultsFailed(self._topic, error.str())
            return None  # the library goes on trying
        self._outages.over()
        self._probe.heard_from()
        self._positions.read(message)
        try:
            return ReadMessage(message, Result.decode(message.value()))
        except ValueError as problem:
            place = f"{message.topic()}/{message.partition()}/{message.offset()}"
            log.warning("message %s left out: %s", place, problem)
            return ReadMessage(message, None)

    def _begin(self, group: str | None, *, from_beginning: bool) -> None:
        self._positions = ResultPositions(
            self._consumer, self._topic, grouped=group is not None, from_beginning=from_beginning
        )
        self._join()

    def _join(self) -> None:
        if self._group is None:
            self._consumer.assign(self._positions.starts)
        else:
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke
            )

    def _begin_anew(self) -> None:
        """With another client, where this one has come to."""
        try:
            another = connect(self._probe, self._outages)
        except ConfigurationError as error:  # a certificate's file is gone, say
            log.warning("%s: no other client can be made yet: %s", self._topic, error)
            self._probe.stays()
            return
        log.error("%s: another client reads on, this one is lost: %s", self._topic, LOST)
        lost, self._consumer, self._assigned, self._anew = self._consumer, another, None, True
        # It may take a minute to find that it can tell nobody that it goes.
        threading.Thread(target=lost.close, name="leave", daemon=True).start()

    # A signal handler may raise out of any line of these two: then it is all done once more.

    def _take_over(self) -> None:
        """Where the client before this one has come to."""
        self._positions.go_on(self._consumer)
        self._join()
        self._anew = False

    def _go_back(self) -> None:
        """To behind what was read last, in whatever is read here."""
        self._positions.go_on(self._consumer)
        if self._group is None:
            self._consumer.assign(self._positions.starts)
        else:  # but for what was assigned and not begun yet
            self._assigned = self._assigned or self._consumer.assignment() or None
            self._ask_at = 0.0
        self._adrift = False

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._assigned, self._ask_at = assigned, 0.0
        # Where to read on is asked after the call that serves this: `list_topics` in a callback
        # takes from the call what the next callback needs, and that ends the process.
        with suppress(KafkaException):
            consumer.assign([])  # or the client would choose where

    def _on_revoke(self, consumer: Consumer, _revoked: list[TopicPartition]) -> None:
        if consumer is self._consumer:
            self._assigned = None

    def _read_on(self) -> None:
        """Reads in what was assigned, as soon as it is known where. Raises ResultsFailed."""
        if self._assigned is None or time.monotonic() < self._ask_at:
            return
        try:
            self._consumer.assign(self._positions.of(self._assigned))
        except KafkaException as error:
            self._ask_at = time.monotonic() + _PAUSE
            if hopeless(error.args[0]):
                raise ResultsFailed(self._topic, error.args[0].str()) from None
            log.warning("%s: where to read on is asked again: %s", self._topic, error.args[0].str())
        else:
            self._assigned = None

    def _handled(self) -> None:
        message, self._last = self._last, None
        if message is not None and self._group is not None:
            try:
                self._consumer.store_offsets(message)
            # Its partition is another reader's now, who reads it again; or this one was closed.
            except (KafkaException, RuntimeError):
                log.debug("offset of %s/%s not kept", message.topic(), message.partition())
