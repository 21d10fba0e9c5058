"""Rows to Kafka through one producer, a wave of them at a time, and what was reported of each.

A producer never gives up a message by itself: one that did, while the next of its key was on its
way, would have changed their order. What is not confirmed in time is taken back all at once, and
the producer with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from feedback.client.kafka_log import OutageLog
from feedback.contract.late_messages import timely
from feedback.guarded_producer import TAKEN_BACK, GuardedProducer
from feedback.message_size import BATCH
from feedback.outbox.relay.batch import ClaimedRow
from feedback.outbox.relay.sets import PARTITIONER, PartitionSets, SetBounds
from feedback.partition_leaders import partition_leaders
from feedback.partitions import Leading
from feedback.produce_errors import is_refusal

if TYPE_CHECKING:
    from feedback.tracing.spans import Spans

_TOPIC_UNKNOWN_FOR: Final = 3_000  # milliseconds
_LEAST: Final = 1_000
"""Of librdkafka's message.max.bytes."""
_LONGEST_LINGER: Final = 900_000
"""Milliseconds; the most that librdkafka takes. flush() does not wait for it."""
_ENDING: Final = 1.0
_NEED_IDEMPOTENCE: Final = frozenset({"enable.gapless.guarantee", "transactional.id"})
_LINGER: Final = "queue.buffering.max.ms"
"""Another name of linger.ms: of both the one that is given last counts."""

Properties = Callable[[Mapping[str, Any], int], dict[str, Any]]
"""A producer's, of librdkafka's that are given, and the bytes of its largest message."""


class RowReport(NamedTuple):
    """What is known of a row that was handed to a producer."""

    confirmed: bool
    error: KafkaError | None = None
    """Why it is not there; None where that is not known, nor whether it is."""
    partition: int = -1
    """-1 where none was chosen yet."""
    taken: bool = True
    """False: the producer did not take it, so no broker has it."""

    @property
    def in_doubt(self) -> bool:
        """Whether a broker may have it though none has confirmed it."""
        if self.confirmed or not self.taken:
            return False
        return self.error is None or not is_refusal(self.error)


def together(given: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Properties of a producer of large sets of messages: a set of them is `most` bytes.

    A set is sent once it is full, or at a flush() and then with all that there is of its partition.
    """
    return {
        "client.id": "oncepool-relay",
        "partitioner": PARTITIONER,
        **{name: value for name, value in given.items() if name != _LINGER},
        "linger.ms": _LONGEST_LINGER,
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": 0,  # never: see above
        "delivery.report.only.error": False,
        "message.max.bytes": max(most, _LEAST),
        "batch.size": min(int(given.get("batch.size", BATCH)), max(most, _LEAST)),
        "topic.metadata.propagation.max.ms": _TOPIC_UNKNOWN_FOR,
    }


def one_by_one(given: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Of a producer that sends each message in a set of its own: what is said of it is true of it.

    Not idempotent, as a message that is refused would have all that follow it refused, too. So it
    is for messages of different keys: nothing of a key is to overtake what is tried again.
    """
    plain = {name: value for name, value in given.items() if name not in _NEED_IDEMPOTENCE}
    return {
        **together(plain, most),
        "enable.idempotence": False,
        "linger.ms": 0,
        "batch.num.messages": 1,
    }


class RowProducer:
    """One producer to one topic. For one thread."""

    def __init__(
        self,
        topic: str,
        producer: Any,
        outages: OutageLog,
        bounds: SetBounds,
        *,
        clock: Callable[[], float] = time.monotonic,
        spans: Spans | None = None,
    ) -> None:
        """`bounds`: of a set, as it makes them. `spans`: where tracing is on."""
        self._topic = topic
        self._one_by_one = bounds.messages == 1
        self._sets = PartitionSets(bounds, lambda: len(self.leaders(None)))
        self._knows_topic = False
        """Whether it has heard of the topic's partitions, and so fills their sets at once."""
        self._guarded: GuardedProducer[Any] = GuardedProducer(producer)
        self._outages = outages
        self._clock = clock
        self._spans = spans
        self._ended = False

    @property
    def failure(self) -> str | None:
        """Why it takes nothing any more."""
        return self._guarded.failure

    @property
    def ended(self) -> bool:
        """Whether another one is needed."""
        return self._ended or self.failure is not None

    def leaders(self, least: int | None) -> dict[int, Leading]:
        """As partition_leaders() says of the topic."""
        return partition_leaders(self._guarded.handle, self._topic, least)

    def wave(self, rows: Sequence[ClaimedRow]) -> list[ClaimedRow]:
        """Those, from the first on, of which none can overtake another of its key.

        Those of a partition go in one set, or they are the first of each key.
        """
        if self._one_by_one or not self._knows_topic:
            return list({row.lane: row for row in reversed(rows)}.values())[::-1]
        return self._sets.fill(rows)

    def send(self, rows: Sequence[ClaimedRow], end: float) -> dict[int, RowReport]:
        """Sends a wave until `end`, on the clock; what is known of those that were handed over.

        Nothing is on its way afterwards. What it says nothing of was not handed over.
        """
        reports: dict[int, RowReport] = {}
        for row in rows:
            if self._clock() >= end:
                break  # frozen meanwhile: they may be another's by now
            try:
                self._produce(row, reports)
            except BufferError:
                break  # the queue is full: the next wave begins with it
            except KafkaException as error:
                self._guarded.hears(error.args[0])
                reports[row.seq] = RowReport(False, error.args[0], taken=False)
                break  # nothing of its key may overtake it
        if self._guarded.flush(max(0.0, end - self._clock())) or self.failure is not None:
            self.close()
        return reports

    def close(self) -> None:
        """Takes back what is not confirmed."""
        if not self._ended:
            self._ended = True
            self._guarded.end(_ENDING)

    def _produce(self, row: ClaimedRow, reports: dict[int, RowReport]) -> None:
        headers = [("ce_id", row.id.encode()), ("ce_type", row.type.encode()), *row.headers]
        timestamp, more = timely(row.created_at, headers, row.read_at)
        headers += more
        span = None
        if self._spans is not None:
            span = self._spans.sending(self._topic, row.id, row.type, row.lane, headers)
            headers = span.headers

        def report(error: KafkaError | None, sent: Any) -> None:
            if span is not None:
                span.reported(error, sent)
            if error is None:
                self._outages.over()
            else:
                self._guarded.hears(error)
            known = None if error is not None and error.code() in TAKEN_BACK else error
            partition = sent.partition() if sent is not None else None
            where = -1 if partition is None else partition
            if error is None:
                self._knows_topic = True
                self._sets.went(row, where)
            reports[row.seq] = RowReport(error is None, known, where)

        self._guarded.produce(
            self._topic,
            key=row.lane,
            value=row.payload,
            headers=headers,
            timestamp=timestamp,
            on_delivery=report,
        )
        reports.setdefault(row.seq, RowReport(False))
