"""The relay's side of Kafka: what becomes of each row that is sent to a topic.

Rows go in large sets. Brokers refuse a set for one message in it: some say for which, others say
the same of all. So what was in such a set goes out once more, each row in a set of its own, and
only the next of a key once the one before has arrived. Until then rows of its key may have
overtaken what is refused, in another set of messages; what is too large is known before.

What is not confirmed in time is the trouble of its partitions: their rows wait, and others go on.
It is the brokers' where none of them answers, or where no partition is left to be tried.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from feedback.client.kafka_log import OutageLog
from feedback.message_size import LARGEST_ROW, TOPIC_TAKES
from feedback.outbox.relay.batch import NOT_CONFIRMED, Batch, ClaimedRow, RowRefusal
from feedback.outbox.relay.producing import RowProducer, RowReport, one_by_one, together
from feedback.outbox.relay.topic import TopicLimit, topic_limit
from feedback.partitions import Leading, StuckPartitions
from feedback.produce_errors import TOO_LARGE, in_doubt, message_refusal, topic_refusal

if TYPE_CHECKING:
    from feedback.tracing.spans import Spans

log = logging.getLogger("oncepool.relay")

_TOPIC_ANEW: Final = 5.0
"""Seconds after which a topic that took nothing is tried again."""
_LIMIT_ANEW: Final = 10.0
"""Seconds after which a row that is too large has the limit looked up again."""
_OVERHEAD: Final = 512
"""Bytes, more than those that a message has beside its own content."""
_SILENCE: Final = "brokers have not confirmed a batch within {:g} s"
_TIME_TO_BEGIN: Final = 0.8
"""Of the time, after which no row is tried alone any more: it has to be confirmed, too."""


class TopicSender:
    """One sender: a topic and its producers."""

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
        self._together: RowProducer | None = None  # once it was open()
        self._apart: RowProducer | None = None  # once it was needed
        self._unmade: str | None = None
        """Why a producer that this turn needed could not be made."""
        self._outages = OutageLog()
        self.largest = 0
        """Bytes of the largest message that it sends, once it was open()."""
        self._in_sync: int | None = None
        """Replicas that a partition needs, where that is known."""
        self._looked_up = 0.0
        self._too_large = False
        """A row was, by the limit as it was looked up."""
        self._closed_topic: tuple[float, RowRefusal] | None = None
        self._stuck = StuckPartitions()
        self._asking: set[int] = set()
        """Partitions of which a row of this batch asks at their next try."""

    def open(self) -> str | None:
        """Sees that rows can be sent; why not, where no broker answers."""
        self._unmade = None
        anew = self._too_large and self._clock() - self._looked_up >= _LIMIT_ANEW
        if self._together is None or self._together.ended or anew:
            limit = self._limit(self._topic, self._given)
            if limit.away is not None:
                return limit.away
            self._too_large, self._looked_up = False, self._clock()
            self._in_sync = limit.in_sync
            own = int(self._given.get("message.max.bytes", 0))
            known = min(filter(None, (limit.bytes, own)), default=TOPIC_TAKES)
            most = min(known, LARGEST_ROW)
            if most != self.largest:
                self.close()
                self.largest = most
        if self._together is None or self._together.ended:
            self._together = self._made(together)
        self._stuck.look(self._leaders, self._clock())
        return self._unmade

    def check(self, row: ClaimedRow) -> RowRefusal | None:
        """Refuses what no broker would take."""
        if self._closed_topic is not None:
            since, refusal = self._closed_topic
            if self._clock() - since < _TOPIC_ANEW:
                return refusal
            self._closed_topic = None
        size = row.size + _OVERHEAD
        if size <= self.largest:
            return None
        self._too_large = True
        return RowRefusal(TOO_LARGE, f"{size} bytes, {self._topic} takes {self.largest}")

    def waits(self, row: ClaimedRow) -> bool:
        """Whether its partition takes nothing for now."""
        return self._stuck.waits(row.lane, self._clock())

    def send(self, batch: Batch, rows: Sequence[ClaimedRow], timeout: float) -> str | None:
        """Sends them and tells the batch of each; why the brokers took nothing in time.

        And for how long rows wait whose partitions take nothing, those that the batch holds among
        them.
        """
        end = self._clock() + timeout
        self._asking.clear()
        # What was refused lately is not to have the others refused with it.
        alone = {row.lane for row in rows if row.failures}
        first = [row for row in rows if row.lane not in alone]
        known = self._send_together(first, end) if first else {}
        unclear = {seq for seq, report in known.items() if report.in_doubt}
        doubted = {row.lane for row in first if _is_doubted(known.get(row.seq))}
        again = [row for row in rows if row.lane in alone or row.lane in doubted]
        apart = self._send_apart(
            [row for row in again if not _is_confirmed(known.get(row.seq))], end
        )
        by_itself = known.keys() | apart.keys() if len(first) == 1 else apart.keys()
        known |= apart
        unclear |= {seq for seq, report in apart.items() if report.in_doubt}
        self._judge(batch, rows, known, by_itself, unclear)
        why = self._trouble(batch, rows, known, timeout)
        for row in batch.held:
            if self._stuck.has(self._stuck.of(row.lane)):
                self._put_off(batch, row, timeout)
        return why

    def freed(self) -> list[str]:
        """How errors begin with which rows were put off for partitions that take messages again."""
        return [f"{self._topic}/{partition}: " for partition in self._stuck.freed()]

    def close(self) -> None:
        """Takes back what is not confirmed; the reports of that say nothing of a row."""
        for producer in (self._together, self._apart):
            if producer is not None:
                producer.close()
        self._together = self._apart = None

    def _made(
        self, properties: Callable[[Mapping[str, Any], int], dict[str, Any]]
    ) -> RowProducer | None:
        """A producer; None where there can be none, which is kept in mind for this turn."""
        try:
            made = self._connect(properties(self._given, self.largest), logger=self._outages)
        except KafkaException as error:
            self._unmade = f"no producer for {self._topic} can be made: {error.args[0].str()}"
            return None
        return RowProducer(self._topic, made, self._outages, clock=self._clock, spans=self._spans)

    def _send_together(self, rows: Sequence[ClaimedRow], end: float) -> dict[int, RowReport]:
        if self._together is None or self._together.ended:
            self._together = self._made(together)
        return {} if self._together is None else self._together.send(rows, end)

    def _send_apart(self, rows: Sequence[ClaimedRow], end: float) -> dict[int, RowReport]:
        """One row of each key at a time, and no more of a key of which one did not arrive."""
        known: dict[int, RowReport] = {}
        lanes: dict[bytes, list[ClaimedRow]] = {}
        for row in reversed(rows):
            lanes.setdefault(row.lane, []).append(row)
        last = self._clock() + (end - self._clock()) * _TIME_TO_BEGIN
        while lanes and self._clock() < last:
            if self._apart is None or self._apart.ended:
                self._apart = self._made(one_by_one)
            if self._apart is None:
                break
            wave = [lane.pop() for lane in lanes.values()]
            known |= self._apart.send(wave, end)
            for row in wave:
                if not lanes[row.lane] or not _is_confirmed(known.get(row.seq)):
                    del lanes[row.lane]
        return known

    def _judge(
        self,
        batch: Batch,
        rows: Sequence[ClaimedRow],
        known: Mapping[int, RowReport],
        alone: Collection[int],
        unclear: Collection[int],
    ) -> None:
        """Tells the batch what is certain of each row.

        `alone` were sent in sets of their own. Of `unclear` ones a broker may have a copy: that
        another one was refused says nothing of it.
        """
        refusals = {
            row.seq: refusal
            for row in rows
            if row.seq in known
            and (refusal := self._refusal(known[row.seq], alone=row.seq in alone)) is not None
        }
        of_topic = next((refusals[s] for s, one in known.items() if _is_of_topic(one)), None)
        if of_topic is not None:
            self._closed_topic = self._clock(), of_topic
        for row in rows:
            if _is_confirmed(known.get(row.seq)):
                batch.confirmed(row.seq)
                continue
            if row.seq in unclear:
                continue
            batch.unsent(row.seq)
            # True of one that was sent, it is true of all.
            refusal = refusals.get(row.seq) if row.seq in known else of_topic
            if refusal is not None:
                batch.refused(row.seq, refusal)

    def _refusal(self, report: RowReport, *, alone: bool) -> RowRefusal | None:
        if report.error is None:
            return None
        code = topic_refusal(report.error)
        if code is None and alone:
            code = message_refusal(report.error)
        return None if code is None else RowRefusal(code, f"{self._topic}: {report.error.str()}")

    def _trouble(
        self,
        batch: Batch,
        rows: Sequence[ClaimedRow],
        known: Mapping[int, RowReport],
        timeout: float,
    ) -> str | None:
        """Why nothing was taken, unless that is so of single partitions."""
        if (failure := self._failed()) is not None:
            return failure
        reports = [(row, known[row.seq]) for row in rows if row.seq in known]
        confirmed = {row.lane: report.partition for row, report in reports if report.confirmed}
        if took := self._stuck.took(confirmed.values()):
            log.info("topic %s: partitions %s take messages again", self._topic, took)
        late = {row.lane: report.partition for row, report in reports if _is_late(report)}
        if late and not self._are_stuck(confirmed, late):
            return _SILENCE.format(timeout)
        for row, report in reports:
            other = report.error if _is_other(report) else None
            if other is not None and not confirmed:
                return other.str()
            if _is_late(report) or other is not None:
                self._put_off(batch, row, timeout, other)
        return None

    def _failed(self) -> str | None:
        """Why a producer has failed for good meanwhile, or there is none."""
        for producer in (self._together, self._apart):
            if producer is not None and producer.failure is not None:
                self.close()
                return producer.failure
        return self._unmade

    def _are_stuck(self, confirmed: Mapping[bytes, int], late: Mapping[bytes, int]) -> bool:
        """Whether these rows are late for their partitions' sake. If so, that is kept in mind."""
        news = self._stuck.explain(confirmed, late, self._leaders, self._clock())
        if news:
            log.warning(
                "topic %s: partitions %s take nothing; rows for them wait, others go",
                self._topic, news,
            )  # fmt: skip
        return news is not None

    def _put_off(
        self, batch: Batch, row: ClaimedRow, timeout: float, error: KafkaError | None = None
    ) -> None:
        """Until its partition is tried again; those behind the first row of it for longer."""
        partition, now = self._stuck.of(row.lane), self._clock()
        place = self._topic if partition is None else f"{self._topic}/{partition}"
        said = f"not confirmed in {timeout:g} s" if error is None else error.str()
        pause = self._stuck.pause(partition, now)
        if partition is not None and self._stuck.has(partition):
            if partition in self._asking:
                pause = self._stuck.hold(partition, now)
            self._asking.add(partition)
        batch.put_off(row.seq, pause, RowRefusal(NOT_CONFIRMED, f"{place}: {said}"))

    def _leaders(self) -> Mapping[int, Leading]:
        if self._together is None:
            return {}
        return self._together.leaders(self._in_sync)


def _is_confirmed(report: RowReport | None) -> bool:
    return report is not None and report.confirmed


def _is_late(report: RowReport) -> bool:
    """Whether it was handed over, and nobody has said a word of it."""
    return not report.confirmed and report.error is None


def _is_doubted(report: RowReport | None) -> bool:
    return report is not None and report.error is not None and in_doubt(report.error)


def _is_of_topic(report: RowReport) -> bool:
    return report.error is not None and topic_refusal(report.error) is not None


def _is_other(report: RowReport) -> bool:
    """Whether what is said is said neither of a message nor of the topic."""
    error = report.error
    return error is not None and not in_doubt(error) and topic_refusal(error) is None
