"""Which rows a broker may have though none has confirmed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from feedback.outbox.relay.batch import Batch, BatchMarks, ClaimedRow
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.topic import TopicLimit

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SILENT = "no word"
MISSING = KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
REFUSED = KafkaError(KafkaError.INVALID_RECORD)
AHEAD = KafkaError(KafkaError.INVALID_TIMESTAMP)
OPEN = KafkaError(KafkaError.UNKNOWN)
"""Says nothing of whether it was written."""

Fates = dict[str, Any]
"""By id: an exception of produce(), a reported error, None where it is confirmed, or SILENT."""


class Played:
    """A producer whose messages have these fates."""

    def __init__(self, fates: Fates) -> None:
        self._fates = fates
        self._open: list[Callable[[Any, Any], None]] = []

    def produce(self, topic: str, **message: Any) -> None:
        fate = self._fates[dict(message["headers"])["ce_id"].decode()]
        if isinstance(fate, Exception):
            raise fate
        if fate is SILENT:
            self._open.append(message["on_delivery"])
        else:
            message["on_delivery"](fate, None)

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return len(self._open)

    def purge(self) -> None:
        for report in self._open:
            report(KafkaError(KafkaError._PURGE_INFLIGHT), None)
        self._open.clear()

    def list_topics(self, topic: str, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def marks(*producers: Fates, keys: str, failures: int = 0) -> BatchMarks:
    """Of rows r0, r1, ... with these keys, sent through producers that come one after the other."""
    made = iter(producers)
    sender = TopicSender(
        "t", {}, connect=lambda *_, **__: Played(next(made)), limit=lambda *_: TopicLimit(),
        clock=lambda: 0.0,
    )  # fmt: skip
    assert sender.open() is None
    rows = [
        ClaimedRow(n, f"r{n}", "t", key.encode(), b"{}", [], NOW, NOW, failures)
        for n, key in enumerate(keys)
    ]
    batch = Batch(rows, sender.check)
    sender.send(batch, batch.to_send, 0.01)
    return batch.marks()


def refused(of: BatchMarks) -> list[tuple[int, str]]:
    return [(mark.seq, mark.refusal.code) for mark in of.refused]


def test_what_is_known_of_the_topic_is_true_of_rows_that_were_not_handed_over() -> None:
    """And says nothing of those that were, before it."""
    found = marks({"r0": SILENT, "r1": MISSING}, keys="abc")
    assert (refused(found), found.in_doubt) == (
        [(1, "topic_missing"), (2, "topic_missing")],
        (0,),
    )
    found = marks({}, {"r0": MISSING}, keys="abab", failures=1)
    assert (refused(found), found.in_doubt) == ([(0, "topic_missing"), (1, "topic_missing")], ())


def test_rows_of_a_set_that_was_refused_are_not_there() -> None:
    found = marks(dict.fromkeys(("r0", "r1", "r2"), AHEAD), {"r0": AHEAD}, keys="kkk")
    assert (refused(found), found.in_doubt) == ([(0, "clock_ahead")], ())


def test_an_error_that_leaves_it_open_leaves_it_open() -> None:
    found = marks({"r0": OPEN, "r1": None, "r2": REFUSED}, {"r2": REFUSED}, keys="abc")
    assert (found.sent, refused(found), found.in_doubt) == ([1], [(2, "refused")], (0,))


def test_that_a_second_copy_was_refused_says_nothing_of_the_first() -> None:
    found = marks({"r0": OPEN, "r1": REFUSED}, {"r0": REFUSED}, keys="kk")
    assert (found.sent, refused(found), found.in_doubt) == ([], [], (0,))
    found = marks({"r0": REFUSED}, {"r0": SILENT}, keys="k")
    assert (refused(found), found.in_doubt) == ([], (0,)), "nor the first of the second"


def test_where_no_producer_for_single_rows_can_be_made_what_was_sent_counts_as_sent() -> None:
    made: Iterator[Fates | KafkaException] = iter(
        [{"r0": REFUSED, "r1": None}, KafkaException(KafkaError(KafkaError._INVALID_ARG))]
    )

    def connect(*_: Any, **__: Any) -> Played:
        given = next(made)
        if isinstance(given, KafkaException):
            raise given
        return Played(given)

    sender = TopicSender(
        "t", {}, connect=connect, limit=lambda *_: TopicLimit(), clock=lambda: 0.0
    )  # fmt: skip
    assert sender.open() is None
    rows = [ClaimedRow(n, f"r{n}", "t", b"k%d" % n, b"{}", [], NOW, NOW, 0) for n in range(2)]
    batch = Batch(rows, sender.check)
    why = sender.send(batch, batch.to_send, 0.01)
    assert why is not None
    assert "no producer for t can be made" in why
    assert batch.marks() == BatchMarks([1], [])
    assert sender.open() is None, "it is made when it is needed again"
