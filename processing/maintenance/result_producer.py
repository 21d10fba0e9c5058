"""Result records on their way to Kafka: a producer, and what it knows the brokers to have."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from feedback.broker_probe import ERRORS_ONLY, LOST, BrokerProbe
from feedback.errors import ConfigurationError
from feedback.guarded_producer import GuardedProducer, PlainProducer
from feedback.journal.result_outbox import StoredResult
from feedback.message_size import BATCH
from feedback.partition_leaders import partition_leaders
from feedback.partitions import Leading, StuckPartitions
from processing.maintenance.record_send import RecordSend

log = logging.getLogger("oncepool.kafka")

DELIVERY_TIMEOUT: Final = 10.0
"""Seconds after which a record that no broker confirmed counts as not delivered."""
PROBE_TIMEOUT: Final = 2.0
_REPORT_LATE: Final = 2.0
BATCH_TIMEOUT: Final = 30.0
"""Seconds after which no more of a batch is sent: what has arrived is deleted in the transaction in
which it was taken, and PostgreSQL ends that where nothing is said in it for long."""
_LEAST_SET: Final = 1_000
_SET_SIZE: Final = "batch.size"
_OURS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as Java's clients, and as ours for requests
    "delivery.timeout.ms": int(DELIVERY_TIMEOUT * 1000),
    "delivery.report.only.error": False,
    "log_level": ERRORS_ONLY,
}
_NOT_FOR_US: Final = ("transactional.id",)
"""A record is sent in no Kafka transaction: the journal's decides whether it goes again."""
ALONE: Final[Mapping[str, Any]] = {
    "batch.num.messages": 1,
    "linger.ms": 0,
    # As many at once as there are; and one that is refused takes no other with it.
    "enable.idempotence": False,
    "enable.gapless.guarantee": False,
}
"""Of a producer that sends each record in a set of its own: for records of different keys."""


class RecordProducer(PlainProducer, Protocol):
    """What is used of confluent_kafka.Producer."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a batch: numbers of records that arrived, and why others did not.

    Without trouble, what did not arrive is for partitions that take nothing: others may.
    """

    arrived: list[int]
    trouble: str | None
    shortened: list[str]
    """Ids of requests whose result no broker takes, so the record went without it."""
    stuck: list[int] = field(default_factory=list)
    """Partitions of which it is news that they take nothing."""


def connect(properties: Mapping[str, Any], more: Mapping[str, Any]) -> RecordProducer:
    """A producer with these librdkafka properties, ours, and `more`. Connects later.

    What `more` says of the size of sets makes them smaller only.
    """
    given = {name: value for name, value in properties.items() if name not in _NOT_FOR_US}
    if _SET_SIZE in given and _SET_SIZE in more:
        more = {**more, _SET_SIZE: min(int(given[_SET_SIZE]), int(more[_SET_SIZE]))}
    try:
        return cast(
            "RecordProducer", confluent_kafka.Producer({**given, **_OURS, **more}, logger=log)
        )
    except KafkaException as error:
        raise ConfigurationError(
            f"kafka_properties do not fit the producer of result records: {error.args[0].str()}"
        ) from None


def result_producer(topic: str, kafka: Mapping[str, Any]) -> ResultProducer:
    """One that sends to this topic with these librdkafka properties.

    Raises ConfigurationError.
    """
    probe = BrokerProbe(kafka)
    return ResultProducer(topic, partial(connect, probe.properties()), probe)


class ResultProducer:
    """Sends batches to one topic, each record at least once. For one thread."""

    def __init__(
        self,
        topic: str,
        make: Callable[[Mapping[str, Any]], RecordProducer],
        probe: BrokerProbe | None = None,
    ) -> None:
        """`make` is told which properties one is to have besides.

        `probe` knows when what was made has lost its brokers.
        """
        self._topic = topic
        self._make = make
        self._probe = probe
        self._set_bytes: dict[str, int] = {}
        """How large a set of messages is, once that had to be smaller."""
        # Wrong properties are told at the start.
        self._producer = GuardedProducer(make(self._set_bytes))
        self._stuck = StuckPartitions()
        self._heard = None if probe is None else probe.heard_from

    def reachable(self) -> bool:
        """Whether a broker answers: asks, and so may take a while.

        A producer that does not answer in time stays, as it may be connecting for longer than that.
        It goes where it has lost its brokers.
        """
        self._producer.poll(0)  # log lines of its own, and that all brokers are down
        handle = self._producer.handle
        if self._probe is not None and self._probe.lost(handle):
            self._replace_lost(self._probe)
            return False
        try:
            return bool(handle.list_topics(self._topic, PROBE_TIMEOUT).brokers)
        except KafkaException:
            return False

    def _replace_lost(self, probe: BrokerProbe) -> None:
        if self._replace():
            log.error("another producer of result records takes the place of one: %s", LOST)
        else:
            probe.stays()

    def _replace(self) -> bool:
        """Whether there is another one now."""
        another = self._another(self._set_bytes)
        if another is None:
            return False
        self._producer = another
        return True

    def _another(self, properties: Mapping[str, Any]) -> GuardedProducer[RecordProducer] | None:
        """None where none can be made now: a certificate's file is gone, say."""
        try:
            return GuardedProducer(self._make(properties))
        except ConfigurationError as error:
            log.warning("no other producer of result records can be made yet: %s", error)
            return None

    def deliver(self, batch: Sequence[StoredResult]) -> Delivery:
        """Sends a batch and waits for the brokers' word, BATCH_TIMEOUT seconds or a bit more.

        A record that is too large is tried alone, as one suffers for the others in its message
        set, and then without its result: else it would stand in the way for ever.
        """
        began = time.monotonic()
        self._stuck.look(self._leaders, began)
        keys = {stored.number: stored.record.request_id.encode() for stored in batch}
        ready = [one for one in batch if not self._stuck.waits(keys[one.number], began)]
        send = RecordSend(self._topic, self._heard)
        send.through(self._producer, ready, began + DELIVERY_TIMEOUT + _REPORT_LATE)
        shortened = self._send_apart(send, ready, began + BATCH_TIMEOUT)
        errors = send.errors
        failed = [error for error in errors.values() if error is not None]
        trouble = failed[0].str() if failed else None
        stuck = None
        if any(map(self._producer.hears, failed)) or self._producer.failure is not None:
            trouble = trouble and self._producer.failure
            self._producer.end()
            self._replace()
        else:
            stuck = self._explained(send, keys)
        return Delivery(
            send.arrived(ready), trouble if stuck is None else None, shortened, stuck or []
        )

    def _send_apart(self, send: RecordSend, ready: Sequence[StoredResult], end: float) -> list[str]:
        """What was refused for its size again, each record in a set of its own.

        All at once but for those of one key, which go one after the other, with what has overtaken
        them. Those that went without their results are named.
        """
        refused = send.too_large(ready)
        if not refused:
            return []
        lanes: dict[str, list[StoredResult]] = {}
        names = {stored.record.request_id for stored in refused}
        for stored in ready[ready.index(refused[0]) :]:
            if stored.record.request_id in names:
                lanes.setdefault(stored.record.request_id, []).append(stored)
                send.forget(stored)
        shortened: set[int] = set()
        producer = self._another(ALONE)
        while producer is not None and lanes and time.monotonic() < end:
            wave = [lane[0] for lane in lanes.values()]
            send.through(producer, wave, end)
            large = send.too_large(wave)
            send.through(producer, large, end, omit_result=True)
            shortened.update(one.number for one in large if send.has_arrived(one))
            lanes = {
                name: lane[1:]
                for name, lane in lanes.items()
                if len(lane) > 1 and send.has_arrived(lane[0])
            }
        if producer is not None:
            producer.end()
        if not shortened and any(map(send.has_arrived, refused)):
            self._make_sets_smaller()
        return [one.record.request_id for one in ready if one.number in shortened]

    def _make_sets_smaller(self) -> None:
        """The topic takes each record, but no such set of them."""
        most = max(_LEAST_SET, self._set_bytes.get(_SET_SIZE, BATCH) // 2)
        self._set_bytes = {_SET_SIZE: most}
        log.info("topic %s: sets of result records have %d bytes from now on", self._topic, most)
        self._producer.end()
        self._replace()

    def _explained(self, send: RecordSend, keys: Mapping[int, bytes]) -> list[int] | None:
        """As StuckPartitions.explain(); None also where one was not on its way to a partition."""
        errors = send.errors
        places = {number: send.where.get(number, -1) for number in errors}
        confirmed = {keys[n]: places[n] for n, error in errors.items() if error is None}
        late = {keys[n]: places[n] for n, error in errors.items() if error is not None}
        self._stuck.took(confirmed.values())
        if -1 in late.values() or not all(map(_in_time_or_late, errors.values())):
            return None
        if not late:
            return []
        return self._stuck.explain(confirmed, late, self._leaders, time.monotonic())

    def _leaders(self) -> Mapping[int, Leading]:
        return partition_leaders(self._producer.handle, self._topic)


def _in_time_or_late(error: KafkaError | None) -> bool:
    """Whether nothing is said of the record but when: anything else is no partition's fault."""
    return error is None or error.code() == KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - as above
