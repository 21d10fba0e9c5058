"""The edge to Kafka: a confluent-kafka consumer that says what happened, in order.

Callbacks only record. They run inside `poll`, where raising, polling or committing would break the
client. One thread owns the consumer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from consumer.config.settings import Settings
from consumer.errors import KafkaRefused
from consumer.intake.events import (
    Answered,
    Assigned,
    ConnectionLost,
    Event,
    Found,
    OffsetReset,
    Place,
    Polled,
    Revoked,
    Trouble,
)
from consumer.intake.kafka_log import ClientLog, librdkafka_logger
from consumer.intake.kafka_properties import Protocol, broker_properties, properties
from consumer.intake.topic_watch import LOOK_EVERY, TopicWatch
from feedback.contract.record import Headers, Record
from processing.logs import BoundLogger

TYPE_HEADER = "ce_type"

NO_CONSUMER_PROTOCOL = (
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - librdkafka's own errors are named so
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.GROUP_ID_NOT_FOUND,
)
"""What a broker that can't serve group.protocol=consumer answers to a member's first heartbeat: it
does not know it, has it turned off, or may not convert the group of members that use the other."""


GROUP_GONE = KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()
"""What the fatal error of a member's heartbeat says where a broker that crashed lost its group."""
METADATA_TIMEOUT = 5.0
ERRORS_ONLY = 3
"""A syslog level: a consumer's properties draw warnings from a client that is none."""

MEMBERSHIP = struct.Struct("=7si")
"""How the client describes its membership: magic and generation; then group and member id follow,
each with a zero byte."""


class Kafka:
    """A confluent-kafka consumer."""

    def __init__(self, settings: Settings, log: BoundLogger) -> None:
        self._settings = settings
        self._log = log
        self._events: list[Event] = []
        self._client_log = ClientLog(self._connection_lost, self._offset_reset)
        self._fallback = settings.kafka_protocol == "auto"
        """The classic protocol may still be taken instead: nothing was assigned so far."""
        self._was_member = False
        """The present client has been a member of the group."""
        self._owned: set[Place] = set()
        self._had = 0
        """How many partitions it owned after the poll before."""
        self._open: str | None = None
        """Metadata of the commit whose answer has not come."""
        self._ahead = False
        """An answer was handed on, and what came before it may still be in the client's queue."""
        self.protocol: Protocol = "classic" if settings.kafka_protocol == "classic" else "consumer"
        self._topics = TopicWatch(settings.kafka_topics, self._list_topics, log, LOOK_EVERY)
        self._consumer = self._make()

    def _make(self) -> Consumer:
        self._client_log.quiet_fatal = self._fallback
        self._was_member = False
        try:
            return Consumer(
                {
                    **properties(self._settings, self.protocol),
                    "on_commit": self._on_commit,
                    "error_cb": self._on_error,
                    "logger": self._client_log,
                }
            )
        except KafkaException as error:
            raise KafkaRefused(error.args[0].str()) from None

    @property
    def member(self) -> bool:
        # Partitions say nothing of it: with KIP-848 a member without any hears of no assignment.
        member = _is_member(self._consumer.consumer_group_metadata())
        self._was_member = self._was_member or member
        return member

    @property
    def missing_topics(self) -> tuple[str, ...] | None:
        return self._topics.missing

    def subscribe(self) -> None:
        self._topics.look_again()
        self._consumer.subscribe(
            self._settings.kafka_topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def poll(self, most: int, timeout: float) -> list[Event]:
        # consume() would wait the whole time unless as many as asked for were there.
        first = self._consumer.poll(timeout)
        drained = first is None
        if first is not None:
            # Before the rest: a revocation that the next call serves came after this message.
            self._take([first])
            if most > 1:
                rest = self._consumer.consume(most - 1, 0)
                drained = len(rest) < most - 1
                self._take(rest)
        events, self._events = self._events, []
        self._ahead = not drained and (self._ahead or any(isinstance(e, Answered) for e in events))
        if len(self._owned) < self._had:
            # With KIP-848 nothing else says that a topic was deleted.
            self._topics.look_again()
        self._had = len(self._owned)
        return events

    def commit(self, offsets: Mapping[Place, int], metadata: str) -> Answered | None:
        if not self.member:
            # Put out of the group, and not told yet. Sent without a generation it would be taken
            # where the group is empty, and put back what others have committed meanwhile.
            return Answered(metadata, "UNKNOWN_MEMBER_ID", {})
        partitions = [
            TopicPartition(topic, partition, offset, metadata)
            for (topic, partition), offset in offsets.items()
        ]
        try:
            # Never synchronous: that would wait for the broker without a bound.
            self._consumer.commit(offsets=partitions, asynchronous=True)
        except KafkaException as error:
            return Answered(metadata, error.args[0].name(), {})
        self._open = metadata
        return None

    def committed(self, places: Sequence[Place], timeout: float) -> Found:
        try:
            partitions = self._consumer.committed(
                [TopicPartition(topic, partition) for topic, partition in places], timeout
            )
        except KafkaException as error:
            self._log.warning("committed offsets not read", error=error.args[0].name())
            return {}
        return {_place(p): (p.offset, p.metadata) for p in partitions if p.error is None}

    def pause(self, places: Iterable[Place], *, paused: bool) -> None:
        partitions = [TopicPartition(topic, partition) for topic, partition in places]
        (self._consumer.pause if paused else self._consumer.resume)(partitions)

    def close(self) -> None:
        self._topics.close()
        self._consumer.close()

    def _list_topics(self) -> frozenset[str]:
        """Called by the watch's thread, so through a client of its own, which is gone afterwards.

        All topics are asked for, as asking for one by name may create it.
        """
        client = Producer(
            {**broker_properties(self._settings), "log_level": ERRORS_ONLY},
            logger=librdkafka_logger(),
        )
        return frozenset(client.list_topics(timeout=METADATA_TIMEOUT).topics)

    # Messages

    def _take(self, messages: list[Message]) -> None:
        if any(map(Message.error, messages)):
            for message in messages:
                if (error := message.error()) is not None:
                    self._on_message_error(error)
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._events.append(Polled(records_of(messages)))

    def _on_message_error(self, error: KafkaError) -> None:
        fatal = error.code() == KafkaError._FATAL or error.fatal()  # noqa: SLF001 - as above
        if fatal and self._fallback and _no_consumer_protocol(error):
            self._fall_back(error)
            return
        if fatal and self._was_member and GROUP_GONE in error.str():
            self._begin_anew(error)
            return
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._topics.look_again()
        self._events.append(Trouble(error.name(), error.str(), fatal=fatal))

    def _fall_back(self, error: KafkaError) -> None:
        self._log.info(
            "the broker does not serve group.protocol=consumer: using classic",
            assignor=self._settings.kafka_assignor,
            error=error.str(),
        )
        self._consumer.close()
        self._fallback = False
        self.protocol = "classic"
        self._consumer = self._make()
        self.subscribe()

    def _begin_anew(self, error: KafkaError) -> None:
        """The broker has lost the group, as after a crash: the client has given up, we have not."""
        self._log.warning("the group is gone from the broker: joining anew", error=error.str())
        self._consumer.close()
        # Whatever the old client did not say any more.
        if self._owned:
            self._on_lost(self._consumer, [TopicPartition(*place) for place in self._owned])
        if self._open is not None:
            self._events.append(Answered(self._open, "GROUP_ID_NOT_FOUND", {}))
            self._open = None
        self._consumer = self._make()
        self.subscribe()

    # Callbacks: they record, and never call the client

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._fallback = self._client_log.quiet_fatal = False
        self._was_member = True
        self._owned.update(map(_place, partitions))
        self._events.append(Assigned(tuple(map(_place, partitions))))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned.difference_update(map(_place, partitions))
        self._events.append(Revoked(tuple(map(_place, partitions)), lost=False))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned.difference_update(map(_place, partitions))
        self._events.append(Revoked(tuple(map(_place, partitions)), lost=True))

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition] | None) -> None:
        partitions = partitions or []
        self._open = None
        self._events.append(
            Answered(
                partitions[0].metadata if partitions else None,
                None if error is None else error.name(),
                {_place(p): None if p.error is None else p.error.name() for p in partitions},
            )
        )

    def _on_error(self, error: KafkaError) -> None:
        self._events.append(Trouble(error.name(), error.str(), fatal=error.fatal()))

    def _connection_lost(self, detail: str) -> None:
        # In the client's queue answers of commits overtake all else.
        answers = (i for i, event in enumerate(self._events) if isinstance(event, Answered))
        place = next(answers, len(self._events))
        self._events.insert(place, ConnectionLost(detail, late=self._ahead))

    def _offset_reset(self, topic: str, partition: int) -> None:
        self._events.append(OffsetReset((topic, partition)))


def _place(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition


def _is_member(membership: bytes) -> bool:
    _, generation = MEMBERSHIP.unpack_from(membership)
    member_id = membership[MEMBERSHIP.size :].split(b"\0")[1]
    return generation > 0 and bool(member_id)


def _no_consumer_protocol(error: KafkaError) -> bool:
    # The fatal error that comes with a message names its cause in words only.
    return any(KafkaError(code).str() in error.str() for code in NO_CONSUMER_PROTOCOL)


def records_of(messages: Sequence[Message]) -> list[Record]:
    """Records of messages without an error, column by column: what a message costs here."""
    headers = _headers_of(messages)
    return list(
        zip(
            map(Message.topic, messages),
            map(Message.partition, messages),
            map(Message.offset, messages),
            [timestamp for _, timestamp in map(Message.timestamp, messages)],
            map(Message.key, messages),
            map(Message.value, messages),
            headers,
            map(_type_of, headers),
            [None] * len(headers),
            strict=True,
        )
    )


def _headers_of(messages: Sequence[Message]) -> list[Headers | None]:
    """Headers of each message, None where a name is not UTF-8: the client can't make a str of it.

    Such a message's headers() must not be called again: it would return a list with a hole in it,
    which crashes the interpreter. Nor from an expression of Python: that calls a method without
    arguments, once it has called it often, without looking whether it has failed.
    """
    found: list[Headers | None] = []
    calls = map(Message.headers, messages)
    while True:
        try:
            for headers in calls:
                found.append(cast("Headers", headers or []))  # noqa: PERF401 - some are kept where one fails
            return found
        except (SystemError, ValueError):
            found.append(None)


def _type_of(headers: Headers | None) -> str | None:
    if not headers:
        return None
    # As a dict, so that of two headers of one name the last one counts, as in the envelope.
    value = dict(headers).get(TYPE_HEADER)
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
