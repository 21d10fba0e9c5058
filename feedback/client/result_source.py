"""Where a reader's result records come from: one Kafka client, or the next where it is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from feedback.broker_probe import LOST, BrokerProbe
from feedback.client.forks import never_free
from feedback.client.kafka_log import OutageLog
from feedback.client.result import ReadMessage
from feedback.client.result_consumer import connect, properties
from feedback.client.result_positions import ResultPositions, hopeless
from feedback.errors import ConfigurationError, ResultsFailed

log = logging.getLogger("oncepool.kafka")

_PAUSE: Final = 1.0


class ResultSource:
    """Of one reader. It reads on behind what was handled; what else was read may come again.

    For one thread at a time. Raises ResultsFailed where waiting does not help.
    """

    def __init__(
        self, kafka: Mapping[str, Any], topic: str, group: str | None, *, from_beginning: bool
    ) -> None:
        """Raises ConfigurationError, too."""
        self._topic = topic
        self._group = group
        self._anew = False  # the consumer is another one, which reads nowhere yet
        self._adrift = False  # where the consumer stands is not behind what was handled last
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

    def prepare(self) -> None:
        """Called before records are read, when what was read before has been handled.

        But for what is to be read again.
        """
        if self._probe.lost(self._consumer):
            self._begin_anew()
        if self._anew:
            self._take_over()
        if self._adrift:
            self._go_back()
        self._read_on()

    def read(self, timeout: float) -> ReadMessage | None:
        """The next message; None where none comes within `timeout` seconds."""
        message = self._consumer.poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if hopeless(error):
                raise ResultsFailed(self._topic, error.str())
            return None  # the library goes on trying
        self._outages.over()
        self._probe.heard_from()
        return ReadMessage.of(message)

    def handled(self, message: Message) -> None:
        """This one, and all before it in its partition."""
        self._positions.handled(message)
        if self._group is None:
            return
        try:
            self._consumer.store_offsets(message)
        # Its partition is another reader's now, who reads it again; or this one was closed.
        except (KafkaException, RuntimeError):
            log.debug("offset of %s/%s not kept", message.topic(), message.partition())

    def read_again(self) -> None:
        """What has not been handled is."""
        self._adrift = True

    def close(self) -> None:
        """Commits what was handled, and leaves the group."""
        self._consumer.close()

    def forked(self) -> None:
        """Called in a process that was forked."""
        never_free(self._consumer)

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
        self._probe.leave(lost)

    # A signal handler may raise out of any line of these two: then it is all done once more.

    def _take_over(self) -> None:
        """Where the client before this one has come to."""
        self._positions.go_on(self._consumer)
        self._join()
        self._anew = False

    def _go_back(self) -> None:
        """To behind what was handled last, in whatever is read here."""
        self._positions.go_on(self._consumer)
        if self._group is None:
            self._consumer.assign(self._positions.starts)
        elif assigned := self._assigned or self._consumer.assignment():
            self._on_assign(self._consumer, assigned)
        self._adrift = False

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        # Where to read on is asked after the call that serves this: `list_topics` in a callback
        # takes from the call what the next callback needs, and that ends the process.
        self._assigned, self._ask_at = assigned, 0.0
        with suppress(KafkaException):
            consumer.assign([])  # nothing comes from where the client would choose to read

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
