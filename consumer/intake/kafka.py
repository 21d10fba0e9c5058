"""The edge to Kafka: a confluent-kafka consumer that says what happened, in order.

Callbacks only record. They run inside `poll`, where raising, polling or committing would break the
client. One thread owns the consumer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from consumer.config.settings import Settings
from consumer.errors import KafkaRefused
from consumer.intake.client_calls import read_committed, send_offsets, take_rest
from consumer.intake.client_lag import client_lag
from consumer.intake.events import (
    Answered,
    Assigned,
    BeforeRevoke,
    ConnectionLost,
    Event,
    Found,
    JoinedAnew,
    OffsetReset,
    Place,
    Polled,
    Revoked,
    Trouble,
)
from consumer.intake.group_client import GroupClient
from consumer.intake.joining import (
    JoinPause,
    failure_is_polled,
    is_member,
    no_consumer_protocol,
)
from consumer.intake.kafka_properties import Protocol, broker_properties, properties
from consumer.intake.kafka_records import headers_in, records_of
from consumer.intake.offset_metadata import LowMark, token_of
from consumer.intake.starting_points import (
    assign,
    name_left_out,
    place_of,
    seek,
    starting_points,
)
from consumer.intake.topic_watch import LOOK_EVERY, TopicWatch, topics_of
from feedback.broker_probe import LOST, BrokerProbe
from processing.logs import BoundLogger


class Kafka:
    """A confluent-kafka consumer, and the one that takes its place where it is lost."""

    def __init__(
        self,
        settings: Settings,
        log: BoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._log = log
        self._events: list[Event] = []
        self._was_member = False
        """This process has been a member of the group, with this client or one before it."""
        self._pause = JoinPause(clock)
        self._to_join = False
        """The group is to be joined as soon as the pause is over."""
        self._owned: set[Place] = set()
        self._had = 0
        """How many partitions it owned after the poll before."""
        self._open: str | None = None
        """Metadata of the commit whose answer has not come."""
        self._ahead = False
        """An answer was handed on, and what came before it may still be in the client's queue."""
        self._closing = False
        """The client is being closed: what its callbacks say is recorded, and that is all."""
        self.before_revoke: BeforeRevoke = lambda _places: None
        self.protocol: Protocol = "classic" if settings.kafka_protocol == "classic" else "consumer"
        self._topics = TopicWatch(
            settings.kafka_topics, partial(topics_of, settings), log, LOOK_EVERY
        )
        self._brokers = BrokerProbe(broker_properties(settings), clock=clock)
        self._use(self._make(self.protocol))

    def _make(self, protocol: Protocol) -> GroupClient:
        return GroupClient(
            properties(self._settings, protocol),
            on_commit=self._on_commit,
            on_error=self._on_error,
            on_connection_lost=self._connection_lost,
            on_offset_reset=self._offset_reset,
        )

    def _use(self, client: GroupClient) -> None:
        self._client, self._consumer = client, client.consumer
        self._ahead = False
        client.log.quiet_fatal = self._may_fall_back

    @property
    def _may_fall_back(self) -> bool:
        """The classic protocol may still be taken instead: no membership so far."""
        auto = self._settings.kafka_protocol == "auto"
        return auto and self.protocol == "consumer" and not self._was_member

    @property
    def member(self) -> bool:
        # Partitions say nothing of it: with KIP-848 a member without any hears of no assignment.
        member = is_member(self._consumer.consumer_group_metadata())
        if member:
            self._joined()
        return member

    @property
    def missing_topics(self) -> tuple[str, ...] | None:
        return self._topics.missing

    def subscribe(self) -> None:
        self._topics.look_again()
        self._to_join = True
        self._join()

    def _join(self) -> None:
        if not self._to_join or not self._pause.over:
            return
        anew = self._client.has_left and self.protocol == "consumer"
        if anew and not self._replace_left():
            return
        self._to_join = False
        with failure_is_polled():
            self._consumer.subscribe(
                self._settings.kafka_topics,
                on_assign=self._client.heard(self._on_assign),
                on_revoke=self._client.heard(self._on_revoke),
                on_lost=self._client.heard(self._on_lost),
            )

    def _joined(self) -> None:
        self._was_member = True
        self._client.log.quiet_fatal = False

    def unsubscribe(self) -> None:
        self._to_join, self._client.has_left = False, True
        with failure_is_polled():
            self._consumer.unsubscribe()

    def poll(self, most: int, timeout: float) -> list[Event]:
        self._join()
        self._topics.tend()
        if self._brokers.lost(self._consumer):
            self._replace_lost()
        self._brokers.before_serving()
        # consume() would wait the whole time unless as many as asked for were there.
        first = self._consumer.poll(timeout)
        drained = first is None
        if first is not None:
            # Before the rest: a revocation that the next call serves came after this message.
            headers, before = self._take([first]), self._brokers.before_serving
            drained = take_rest(lambda: self._consumer, most - 1, headers, self._take, before)
        events, self._events = self._events, []
        self._ahead = not drained and (self._ahead or any(isinstance(e, Answered) for e in events))
        if len(self._owned) < self._had:
            # With KIP-848 nothing else says that a topic was deleted.
            self._topics.look_again()
        self._had = len(self._owned)
        return events

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, LowMark]
    ) -> Answered | None:
        if not self.member:
            # Put out of the group, and not told yet. Sent without a generation it would be taken
            # where the group is empty, and put back what others have committed meanwhile.
            return Answered(metadata, "UNKNOWN_MEMBER_ID", {}, sent=False)
        try:
            send_offsets(self._consumer, offsets, metadata, marks)
        except KafkaException as error:
            return Answered(metadata, error.args[0].name(), {}, sent=False)
        self._open = metadata
        return None

    def find_starts(self, places: Sequence[Place], timeout: float) -> Assigned:
        reset = self._settings.auto_offset_reset
        found = starting_points(self._consumer, places, self._log, reset=reset, timeout=timeout)
        found = seek(self._consumer, found, self._log)
        return Assigned(tuple(places), found.gaps, found.unknown)

    def committed(self, places: Sequence[Place], timeout: float) -> Found:
        return read_committed(self._consumer, places, timeout, self._log)

    def pause(self, places: Iterable[Place], *, paused: bool) -> None:
        partitions = [TopicPartition(topic, partition) for topic, partition in places]
        (self._consumer.pause if paused else self._consumer.resume)(partitions)

    @property
    def brokers_away_for(self) -> float | None:
        return self._brokers.away_for

    def lag(self) -> dict[str, int]:
        if self.brokers_away_for is not None:
            return {}  # it hears of nothing that comes
        return client_lag(self._consumer, self._settings.kafka_topics, self._owned)

    def close(self) -> None:
        self._topics.close()
        self._closing = True
        self._consumer.close()

    # Messages

    def _take(self, messages: list[Message]) -> int:
        """Records them; returns how many headers they have."""
        if any(map(Message.error, messages)):
            for message in messages:
                if (error := message.error()) is not None:
                    self._on_message_error(error)
            messages = [message for message in messages if message.error() is None]
        if not messages:
            return 0
        self._brokers.heard_from()
        records = records_of(messages)
        if self._events and isinstance(last := self._events[-1], Polled):
            last.records.extend(records)
        else:
            self._events.append(Polled(records))
        return headers_in(records)

    def _on_message_error(self, error: KafkaError) -> None:
        fatal = error.code() == KafkaError._FATAL or error.fatal()  # noqa: SLF001 - its public name
        if fatal and self._may_fall_back and no_consumer_protocol(error):
            self._fall_back(error)
            return
        if fatal and self._was_member and self._pause.mends(error):
            self._begin_anew(error.str(), self._make(self.protocol))
            return
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._topics.look_again()
        self._events.append(Trouble(error.name(), error.str(), fatal=fatal))

    def _fall_back(self, error: KafkaError) -> None:
        another = self._make("classic")
        self._log.info(
            "the broker does not serve group.protocol=consumer: using classic",
            assignor=self._settings.kafka_assignor, error=error.str(),
        )  # fmt: skip
        self.protocol = "classic"
        self._replace(another)
        self.subscribe()

    def _another(self) -> GroupClient | None:
        try:
            return self._make(self.protocol)
        except KafkaRefused as error:  # a certificate's file is gone, say
            self._log.warning("no other Kafka client can be made yet", error=str(error))
            return None

    def _replace_lost(self) -> None:
        if another := self._another():
            self._begin_anew(LOST, another)
        else:
            self._brokers.stays()

    def _replace_left(self) -> bool:
        """Whether there is another client now, which may join."""
        if another := self._another():
            self._replace(another)
        else:
            self._pause.begin()
        return another is not None

    def _begin_anew(self, reason: str, another: GroupClient) -> None:
        """The client has given up its membership, we have not."""
        pause = self._pause.begin()
        self._log.warning("the group has to be joined anew", error=reason, seconds=round(pause, 1))
        # Answers of this poll the new client reads back; what comes late of the old one is void.
        said = [event for event in self._events if not isinstance(event, ConnectionLost)]
        self._events = [JoinedAnew(), *said]
        self._replace(another)
        self.subscribe()

    def _replace(self, another: GroupClient) -> None:
        """The client is closed without being waited for: its broker may not answer any more."""
        self._client.leave(self._brokers.leave)
        # Whatever it did not say any more.
        if self._owned:
            self._on_lost(self._consumer, [TopicPartition(*place) for place in self._owned])
        if self._open is not None:
            self._events.append(Answered(self._open, "GROUP_ID_NOT_FOUND", {}))
            self._open = None
        self._use(another)

    # Callbacks: they record, and wait for the broker only to read offsets, which has a bound

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joined()
        places = tuple(map(place_of, partitions))
        self._owned.update(places)
        if self._closing or not self._settings.read_again:
            if not self._closing:
                name_left_out(consumer, places, self._log)
            self._events.append(Assigned(places))
            return
        reset = self._settings.auto_offset_reset
        found = starting_points(consumer, places, self._log, reset=reset)
        eager = self.protocol == "classic" and self._settings.kafka_assignor == "range"
        assign(consumer, found, eager=eager)
        self._events.append(Assigned(places, found.gaps, found.unknown))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = tuple(map(place_of, partitions))
        self._owned.difference_update(places)
        last = None if self._closing else self.before_revoke(places)
        if last is not None and self.member:
            # It goes before whatever lets the partitions go, on the same connection.
            with contextlib.suppress(KafkaException):
                send_offsets(consumer, last.offsets, last.metadata, last.marks)
        self._events.append(Revoked(places, lost=False))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned.difference_update(map(place_of, partitions))
        self._events.append(Revoked(tuple(map(place_of, partitions)), lost=True))

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition] | None) -> None:
        partitions = partitions or []
        if not partitions or token_of(partitions[0].metadata) == self._open:
            self._open = None
        self._events.append(
            Answered(
                token_of(partitions[0].metadata) if partitions else None,
                None if error is None else error.name(),
                {place_of(p): None if p.error is None else p.error.name() for p in partitions},
            )
        )

    def _on_error(self, error: KafkaError) -> None:
        self._brokers.heard(error)
        self._events.append(Trouble(error.name(), error.str(), fatal=error.fatal()))

    def _connection_lost(self, detail: str) -> None:
        # In the client's queue answers of commits overtake all else.
        answers = (i for i, event in enumerate(self._events) if isinstance(event, Answered))
        place = next(answers, len(self._events))
        self._events.insert(place, ConnectionLost(detail, late=self._ahead))

    def _offset_reset(self, topic: str, partition: int) -> None:
        self._events.append(OffsetReset((topic, partition)))
