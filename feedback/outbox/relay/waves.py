"""One sender's producers, and which rows are on their way at once.

Brokers refuse a set of messages for one in it. A later set of its partition may be taken all the
same, and rows in it would have overtaken those of their key in the first. So no two sets of a
partition are on their way at once, and after each one no more goes of a key of which a row did not
arrive. Some brokers say for which message they refuse a set, others say the same of all in it:
these rows go once more, each in a set of its own, and only the next of a key once the one before
has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaException

from feedback.broker_probe import BrokerProbe
from feedback.client.kafka_log import OutageLog
from feedback.outbox.relay.batch import ClaimedRow
from feedback.outbox.relay.producing import (
    Properties,
    RowProducer,
    RowReport,
    one_by_one,
    together,
)
from feedback.outbox.relay.sets import set_bounds
from feedback.partitions import Leading
from feedback.produce_errors import in_doubt, message_refusal

if TYPE_CHECKING:
    from feedback.tracing.spans import Spans

_TIME_TO_BEGIN: Final = 0.8
"""Of the time, after which no more rows are begun: they have to be confirmed, too."""


class Sent(NamedTuple):
    """What became of rows. Of what was not handed over it says nothing."""

    known: dict[int, RowReport]
    """The last report of each."""
    alone: set[int]
    """They went in a set of their own: what is said of it is true of them."""
    unclear: set[int]
    """A broker may have one, though none has confirmed it: that a second copy was refused says
    nothing of the first."""
    codes: set[str]
    """For what brokers have refused sets of them."""

    def add(self, reports: Mapping[int, RowReport], *, alone: bool) -> None:
        """Of rows that were handed over together."""
        self.known.update(reports)
        self.unclear.update(seq for seq, report in reports.items() if report.in_doubt)
        errors = [report.error for report in reports.values() if report.error is not None]
        self.codes.update(filter(None, map(message_refusal, errors)))
        if alone:
            self.alone.update(reports)

    def has(self, row: ClaimedRow) -> bool:
        """Whether brokers have confirmed it."""
        report = self.known.get(row.seq)
        return report is not None and report.confirmed


class SendWaves:
    """The producers of one topic: of large sets, and of one message each. For one thread."""

    def __init__(
        self,
        topic: str,
        properties: Mapping[str, Any],
        *,
        connect: Callable[..., Any],
        clock: Callable[[], float],
        spans: Spans | None = None,
    ) -> None:
        """`properties` are librdkafka's. `spans`: where tracing is on."""
        self._topic = topic
        # What a callback of the user's raises is not to end a send.
        self._given = BrokerProbe(properties).properties()
        self._connect = connect
        self._clock = clock
        self._spans = spans
        self._outages = OutageLog()
        self._producers: dict[Properties, RowProducer] = {}
        self._largest = 0
        self._unmade: str | None = None
        """Why a producer that was needed since open() could not be made."""

    @property
    def ended(self) -> bool:
        """Whether there is none that sends, or no more."""
        return together not in self._producers or self._producers[together].ended

    def open(self, largest: int) -> str | None:
        """Sees that there is a producer of messages of so many bytes; why there can be none."""
        if largest != self._largest:
            self.close()
            self._largest = largest
        self._unmade = None
        self._ready(together)
        return self._unmade

    def failed(self) -> str | None:
        """Why one has failed for good meanwhile, or could not be made."""
        for producer in self._producers.values():
            if producer.failure is not None:
                self.close()
                return producer.failure
        return self._unmade

    def close(self) -> None:
        """Takes back what is not confirmed; the reports of that say nothing of a row."""
        for producer in self._producers.values():
            producer.close()
        self._producers.clear()

    def leaders(self, least: int | None) -> dict[int, Leading]:
        """As partition_leaders() says of the topic."""
        sending = self._producers.get(together)
        return {} if sending is None else sending.leaders(least)

    def send(self, rows: Sequence[ClaimedRow], end: float) -> Sent:
        """Sends them until `end`, on the clock. Nothing is on its way afterwards."""
        sent = Sent({}, set(), set(), set())
        # What was refused lately is not to have the others refused with it.
        alone = {row.lane for row in rows if row.failures}
        self._send(together, [row for row in rows if row.lane not in alone], end, sent)
        self._send(one_by_one, [row for row in rows if row.lane in alone], end, sent)
        return sent

    def _send(
        self, properties: Properties, rows: Sequence[ClaimedRow], end: float, sent: Sent
    ) -> None:
        """Wave by wave; no more of a key of which one did not arrive."""
        last = self._clock() + (end - self._clock()) * _TIME_TO_BEGIN
        while rows and (producer := self._ready(properties)) is not None:
            wave = producer.wave(rows)
            reports = producer.send(wave, end)
            sent.add(reports, alone=properties is one_by_one or len(wave) == 1)
            if properties is together:
                lanes = {row.lane for row in wave if _is_doubted(reports.get(row.seq))}
                begun = [row for row in wave if row.seq in reports]
                again = [row for row in begun if row.lane in lanes and not sent.has(row)]
                self._send(one_by_one, again, end, sent)
            if not all(report.taken for report in reports.values()):
                return
            if not reports or producer.ended or self._clock() >= last:
                return
            missing = {row.lane for row in wave if row.seq in sent.known and not sent.has(row)}
            rows = [row for row in rows if row.seq not in reports and row.lane not in missing]

    def _ready(self, properties: Properties) -> RowProducer | None:
        """A producer; None where there can be none, which is kept in mind."""
        producer = self._producers.get(properties)
        if producer is not None and not producer.ended:
            return producer
        told = properties(self._given, self._largest)
        try:
            made = self._connect(told, logger=self._outages)
        except KafkaException as error:
            self._unmade = f"no producer for {self._topic} can be made: {error.args[0].str()}"
            return None
        self._producers[properties] = producer = RowProducer(
            self._topic, made, self._outages, set_bounds(told), clock=self._clock, spans=self._spans
        )
        return producer


def _is_doubted(report: RowReport | None) -> bool:
    return report is not None and report.error is not None and in_doubt(report.error)
