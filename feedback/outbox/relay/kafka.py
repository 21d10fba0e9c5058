"""The relay's side of Kafka: many messages in flight, and what became of each.

The producer never gives up a message by itself: one that did, while the next of its key was on
its way, would have changed their order. What is not confirmed in time is taken back all at once,
and the producer with it.

What brokers refuse that was let through here goes out once more row by row, to find which it is.
Until then rows of its key may have overtaken it, in another set of messages: librdkafka's guarantee
against that ends the whole producer with an exception that the Python client raises in the middle
of its callbacks, so that nothing is known of any row. What is too large is known before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from feedback.client.kafka_log import OutageLog
from feedback.guarded_producer import GuardedProducer
from feedback.outbox.relay.batch import Batch, ClaimedRow, RowRefusal
from feedback.outbox.relay.topic import TopicLimit, topic_limit
from feedback.produce_errors import TOO_LARGE, message_refusal, topic_refusal

if TYPE_CHECKING:
    from feedback.tracing.spans import Spans

_TOPIC_UNKNOWN_FOR: Final = 3_000  # milliseconds
_TOPIC_ANEW: Final = 5.0
"""Seconds after which a topic that took nothing is tried again."""
_LIMIT_ANEW: Final = 10.0
"""Seconds after which a row that is too large has the limit looked up again."""
_OVERHEAD: Final = 512
"""Bytes, more than those that a message has beside its own content."""
_LEAST: Final = 1_000
"""Of librdkafka's message.max.bytes."""
_SET_BYTES: Final = 1_000_000
_ENDING: Final = 1.0
_SILENCE: Final = "brokers have not confirmed a batch within {:g} s"


class TopicSender:
    """One sender: a topic and a producer."""

    def __init__(
        self,
        topic: str,
        properties: Mapping[str, Any],
        *,
        connect: Callable[..., Any] = Producer,
        limit: Callable[[str, Mapping[str, Any]], TopicLimit] = topic_limit,
        clock: Callable[[], float] = time.monotonic,
        spans: Spans | None = None,
    ) -> None:
        """`properties` are librdkafka's. `limit` asks the brokers what the topic takes.

        `spans`: where tracing is on.
        """
        self._spans = spans
        self._topic = topic
        self._given = dict(properties)
        self._connect = connect
        self._limit = limit
        self._clock = clock
        self._producer: Any = None  # a GuardedProducer, once it was open()
        self._outages = OutageLog()
        self._max_bytes = 0
        self._looked_up = 0.0
        self._too_large = False
        """A row was, by the limit as it was looked up."""
        self._closed_topic: tuple[float, RowRefusal] | None = None
        # Of one set of messages:
        self._trouble: str | None = None
        self._doubted = False
        self._refused_here = False
        self._left: dict[int, ClaimedRow] = {}

    def open(self) -> str | None:
        """Sees that rows can be sent; why not, where no broker answers."""
        anew = self._too_large and self._clock() - self._looked_up >= _LIMIT_ANEW
        if self._producer is not None and not anew:
            return None
        limit = self._limit(self._topic, self._given)
        if limit.away is not None:
            return limit.away
        self._too_large, self._looked_up = False, self._clock()
        own = int(self._given.get("message.max.bytes", 0))
        most = min(filter(None, (limit.bytes, own)), default=_SET_BYTES)
        if most != self._max_bytes:
            self.close()
            self._max_bytes = most
        if self._producer is None:
            made = self._connect(self._properties(), logger=self._outages)
            self._producer = GuardedProducer(made)
        return None

    def check(self, row: ClaimedRow) -> RowRefusal | None:
        """Refuses what no broker would take."""
        if self._closed_topic is not None:
            since, refusal = self._closed_topic
            if self._clock() - since < _TOPIC_ANEW:
                return refusal
            self._closed_topic = None
        size = len(row.payload) + len(row.id) + len(row.type) + len(row.key or b"") + _OVERHEAD
        size += sum(len(name) + len(value) for name, value in row.headers)
        if size <= self._max_bytes:
            return None
        self._too_large = True
        return RowRefusal(TOO_LARGE, f"{size} bytes, {self._topic} takes {self._max_bytes}")

    def send(self, batch: Batch, rows: Sequence[ClaimedRow], timeout: float) -> str | None:
        """Sends them and tells the batch of each; why some were not confirmed in time."""
        end = self._clock() + timeout
        self._left = {row.seq: row for row in rows}
        if self._send_together(batch, rows, end):
            return None
        if not self._doubted:
            return self._trouble or _SILENCE.format(timeout)
        held: set[bytes] = set()
        for row in list(self._left.values()):
            if row.lane in held:
                continue
            if (why := self.open()) is not None:
                return why
            if not self._send_together(batch, [row], end):
                return self._trouble or _SILENCE.format(timeout)
            if row.seq in self._left:
                held.add(row.lane)
        return None

    def close(self) -> None:
        """Takes back what is not confirmed; the reports of that say nothing of a row."""
        if self._producer is not None:
            self._producer.end(_ENDING)
            self._producer = None

    def _properties(self) -> dict[str, Any]:
        most = max(self._max_bytes, _LEAST)
        return {
            "client.id": "oncepool-relay",
            "linger.ms": 5,
            "partitioner": "murmur2_random",  # as our client and Java's choose
            **self._given,
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": 0,  # never: see above
            "message.max.bytes": most,
            "batch.size": min(int(self._given.get("batch.size", _SET_BYTES)), most),
            "topic.metadata.propagation.max.ms": _TOPIC_UNKNOWN_FOR,
            "error_cb": _ignore,  # else flush() raises what reports say
        }

    def _send_together(self, batch: Batch, rows: Sequence[ClaimedRow], end: float) -> bool:
        """Whether something is certain of each row; `_doubted` where one is refused among many."""
        self._trouble = None
        self._doubted = self._refused_here = False
        alone = len(rows) == 1
        for row in rows:
            try:
                self._produce(batch, row, end, alone=alone)
            except BufferError:
                self._trouble = "the producer's queue does not empty"
            except KafkaException as error:
                self._judge(batch, row, error.args[0], alone=alone)
            if self._trouble or self._doubted:
                break  # nothing may overtake what is in doubt
        late = self._producer.flush(max(0.0, end - self._clock()))
        failure = self._producer.failure
        whole = not (late or self._trouble or self._doubted)
        if not whole and failure:
            self._trouble = failure  # the reports only say that they were taken back
        if not whole or self._refused_here or failure:
            trouble, doubted = self._trouble, self._doubted
            self.close()
            self._trouble, self._doubted = trouble, doubted  # not what was just taken back
        return whole

    def _produce(self, batch: Batch, row: ClaimedRow, end: float, *, alone: bool) -> None:
        headers = [("ce_id", row.id.encode()), ("ce_type", row.type.encode()), *row.headers]
        span = None
        if self._spans is not None:
            span = self._spans.sending(self._topic, row.id, row.type, row.lane, headers)
            headers = span.headers

        def report(error: KafkaError | None, sent: object) -> None:
            if span is not None:
                span.reported(error, sent)
            if error is None:
                batch.confirmed(row.seq)
                self._left.pop(row.seq, None)
                self._outages.over()
            else:
                self._judge(batch, row, error, alone=alone)

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=row.lane,
                    value=row.payload,
                    headers=headers,
                    timestamp=round(row.created_at.timestamp() * 1000),
                    on_delivery=report,
                )
                return
            except BufferError:
                if self._clock() >= end:
                    raise
                self._producer.poll(0.05)

    def _judge(self, batch: Batch, row: ClaimedRow, error: KafkaError, *, alone: bool) -> None:
        """A verdict on this row, a doubt about several, or trouble of the whole."""
        self._producer.hears(error)
        of_topic, of_row = topic_refusal(error), message_refusal(error)
        code = of_topic or of_row
        if code is None:
            self._trouble = self._trouble or error.str()
            return
        if of_row is not None and not alone:
            self._doubted = True
            return
        refusal = RowRefusal(code, f"{self._topic}: {error.str()}")
        if of_topic is not None:
            self._closed_topic = self._clock(), refusal
        self._refused_here = True
        batch.refused(row.seq, refusal)


def _ignore(error: KafkaError) -> None:
    """What becomes of each message is in its report."""
