"""The relay's side of Kafka: what becomes of each row that is sent to a topic.

What is too large is known before it is sent. What is not confirmed in time is the trouble of its
partitions: their rows wait, and others go on. It is the brokers' where none of them answers, or
where no partition is left to be tried.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, Producer

from feedback.message_size import LARGEST_ROW, TOPIC_TAKES
from feedback.outbox.relay.batch import NOT_CONFIRMED, Batch, ClaimedRow, RowRefusal
from feedback.outbox.relay.producing import RowReport
from feedback.outbox.relay.sets import OVERHEAD
from feedback.outbox.relay.topic import TopicLimit, topic_limit
from feedback.outbox.relay.waves import SendWaves, Sent
from feedback.partitions import Leading, StuckPartitions
from feedback.produce_errors import TOO_LARGE, in_doubt, message_refusal, topic_refusal

if TYPE_CHECKING:
    from feedback.tracing.spans import Spans

log = logging.getLogger("oncepool.relay")

_TOPIC_ANEW: Final = 5.0
"""Seconds after which a topic that took nothing is tried again."""
_LIMIT_ANEW: Final = 10.0
"""Seconds after which something that is too large has the limit looked up again."""
_QUEUE: Final = "queue.buffering.max.kbytes"
_SILENCE: Final = "brokers have not confirmed a batch within {:g} s"


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
        self._topic = topic
        self._given = dict(properties)
        self._limit = limit
        self._clock = clock
        self._waves = SendWaves(topic, self._given, connect=connect, clock=clock, spans=spans)
        self.largest = 0
        """Bytes of the largest message that it sends, once it was open()."""
        self._in_sync: int | None = None
        """Replicas that a partition needs, where that is known."""
        self._looked_up = 0.0
        self._too_large = False
        """A row was, by the limit as it was looked up, or a set of them, as brokers said."""
        self._closed_topic: tuple[float, RowRefusal] | None = None
        self._stuck = StuckPartitions()
        self._asking: set[int] = set()
        """Partitions of which a row of this batch asks at their next try."""

    def open(self) -> str | None:
        """Sees that rows can be sent; why not, where no broker answers."""
        anew = self._too_large and self._clock() - self._looked_up >= _LIMIT_ANEW
        if self._waves.ended or anew:
            limit = self._limit(self._topic, self._given)
            if limit.away is not None:
                return limit.away
            self._too_large, self._looked_up = False, self._clock()
            self._in_sync = limit.in_sync
            self.largest = self._most(limit.bytes)
        why = self._waves.open(self.largest)
        self._stuck.look(self._leaders, self._clock())
        return why

    def _most(self, topic_takes: int | None) -> int:
        own = int(self._given.get("message.max.bytes", 0))
        known = min(filter(None, (topic_takes, own)), default=TOPIC_TAKES)
        queue = int(self._given.get(_QUEUE, 0)) * 1024 or LARGEST_ROW
        return min(known, queue, LARGEST_ROW)

    def ask(self) -> str | None:
        """Why no broker answers. In any thread."""
        return self._limit(self._topic, self._given).away

    def check(self, row: ClaimedRow) -> RowRefusal | None:
        """Refuses what no broker would take."""
        if self._closed_topic is not None:
            since, refusal = self._closed_topic
            if self._clock() - since < _TOPIC_ANEW:
                return refusal
            self._closed_topic = None
        size = row.size + OVERHEAD
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
        sent = self._waves.send(rows, end)
        self._too_large |= TOO_LARGE in sent.codes
        self._judge(batch, rows, sent)
        why = self._trouble(batch, rows, sent.known, timeout)
        for row in batch.held:
            if self._stuck.has(self._stuck.of(row.lane)):
                self._put_off(batch, row, timeout)
        return why

    def freed(self) -> list[str]:
        """How errors begin with which rows were put off for partitions that take messages again."""
        return [f"{self._topic}/{partition}: " for partition in self._stuck.freed()]

    def close(self) -> None:
        """Takes back what is not confirmed."""
        self._waves.close()

    def _judge(self, batch: Batch, rows: Sequence[ClaimedRow], sent: Sent) -> None:
        """Tells the batch what is certain of each row."""
        refusals = {
            seq: refusal
            for seq, report in sent.known.items()
            if (refusal := self._refusal(report, alone=seq in sent.alone)) is not None
        }
        of_topic = next((refusals[s] for s, one in sent.known.items() if _is_of_topic(one)), None)
        if of_topic is not None:
            self._closed_topic = self._clock(), of_topic
        for row in rows:
            if sent.has(row):
                batch.confirmed(row.seq)
                continue
            if row.seq in sent.unclear:
                continue
            batch.unsent(row.seq)
            # True of one that was sent, it is true of all.
            refusal = refusals.get(row.seq) if row.seq in sent.known else of_topic
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
        if (failure := self._waves.failed()) is not None:
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
        return self._waves.leaders(self._in_sync)


def _is_late(report: RowReport) -> bool:
    """Whether it was handed over, and nobody has said a word of it."""
    return not report.confirmed and report.error is None


def _is_of_topic(report: RowReport) -> bool:
    return report.error is not None and topic_refusal(report.error) is not None


def _is_other(report: RowReport) -> bool:
    """Whether what is said is said neither of a message nor of the topic."""
    error = report.error
    return error is not None and not in_doubt(error) and topic_refusal(error) is None
