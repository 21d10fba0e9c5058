"""Sending result records: when, and what is made of the brokers' answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import orjson
import pytest
from confluent_kafka import KafkaError

from feedback.backoff import Breaker
from feedback.broker_probe import BrokerProbe
from feedback.errors import ConfigurationError
from feedback.journal.result_outbox import ResultRecord, StoredResult
from feedback.message_size import BATCH
from feedback.partitions import partition_of
from processing.logs import get_logger
from processing.maintenance import record_send, result_producer, result_relay
from processing.maintenance.result_producer import ResultProducer, connect
from processing.maintenance.result_relay import (
    _TIMEOUTS,
    AGAIN,
    AT_ONCE,
    BETWEEN,
    LONGEST,
    SHORTEST,
    RelayPlace,
    RelayTiming,
    ResultRelay,
)
from processing.settings import MaintenanceSettings
from tests.support.fake_result_producer import FakeProducer, Verdict, never

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
LIST_TOO_LARGE = KafkaError(KafkaError.RECORD_LIST_TOO_LARGE)
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
FATAL = KafkaError(KafkaError._FATAL, "epoch lost", fatal=True)


class Placed:
    """A message that went to this partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partition(self) -> int:
        return self._partition


class Choosy(FakeProducer):
    """Confirms each message but those with results of seven characters."""

    def flush(self, timeout: float) -> int:
        waiting, self._open = self._open, []
        for value, report in waiting:
            report(TIMED_OUT if b'"xxxxxxx"' in value else None, self)
        return 0


def batch(*sizes: int) -> list[StoredResult]:
    return [
        StoredResult(
            number,
            datetime(2030, 1, 1, tzinfo=UTC),
            ResultRecord(f"r-{number}", "t", "done", "ok", orjson.dumps("x" * size)),
        )
        for number, size in enumerate(sizes)
    ]


def larger_than(limit: int, error: KafkaError = TOO_LARGE) -> Verdict:
    return lambda values: error if sum(map(len, values)) > limit else None


def test_what_the_broker_confirms_has_arrived() -> None:
    fake = FakeProducer(never)

    delivery = ResultProducer("results", lambda _: fake).deliver(batch(1, 1, 1))

    assert (delivery.arrived, delivery.trouble, delivery.shortened) == ([0, 1, 2], None, [])
    assert [m["key"] for m in fake.sent] == [b"r-0", b"r-1", b"r-2"]
    assert {m["topic"] for m in fake.sent} == {"results"}


def test_what_is_not_confirmed_has_not_arrived() -> None:
    delivery = ResultProducer("results", lambda _: FakeProducer(lambda _: TIMED_OUT)).deliver(
        batch(1, 1)
    )

    assert delivery.arrived == []
    assert delivery.trouble == TIMED_OUT.str()


@pytest.mark.parametrize("error", [TOO_LARGE, LIST_TOO_LARGE], ids=["message", "segment"])
@pytest.mark.parametrize("at_once", [True, False], ids=["refused here", "refused by the broker"])
def test_a_result_too_large_is_left_out_of_its_record(at_once: bool, error: KafkaError) -> None:
    fake = FakeProducer(larger_than(500, error), refuse_at_once=at_once)

    delivery = ResultProducer("results", fake.made).deliver(batch(10, 1000, 10))

    assert sorted(delivery.arrived) == [0, 1, 2]
    assert (delivery.trouble, delivery.shortened) == (None, ["r-1"])
    last = {m["key"]: orjson.loads(m["value"]) for m in fake.sent}
    assert last[b"r-1"]["result_omitted"] is True
    assert "result" not in last[b"r-1"]
    assert last[b"r-0"]["result"] == last[b"r-2"]["result"] == "x" * 10


def test_records_too_large_only_together_keep_their_results() -> None:
    fake = FakeProducer(larger_than(500))

    delivery = ResultProducer("results", fake.made).deliver(batch(200, 200, 200))

    assert sorted(delivery.arrived) == [0, 1, 2]
    assert delivery.shortened == []


def of_one_request(*sizes: int) -> list[StoredResult]:
    return [replace(s, record=replace(s.record, request_id="r")) for s in batch(*sizes)]


def test_records_of_one_request_go_one_after_the_other_where_one_was_refused() -> None:
    fake = FakeProducer(larger_than(500))
    producer = ResultProducer("results", fake.made)
    assert producer.deliver(of_one_request(1, 1000, 1)).arrived == [0, 1, 2]
    said = [orjson.loads(message["value"]).get("result", "") for message in fake.sent]
    assert [len(result) for result in said[-4:]] == [1, 1000, 0, 1]


def test_what_has_overtaken_one_of_its_request_goes_again_with_it() -> None:
    producer = ResultProducer("results", lambda _: Choosy(never))
    delivery = producer.deliver([*of_one_request(1, 7, 1), *batch(1, 1, 1, 1)[3:]])
    assert delivery.arrived == [0, 3]


def test_a_batch_ends_long_before_its_transaction_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers take a while for each, and each has to be asked for by itself."""
    clock = [0.0]
    monkeypatch.setattr(result_producer, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(record_send, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Slow(FakeProducer):
        def flush(self, timeout: float) -> int:
            clock[0] += 4.0 if self._open else 0.0
            return super().flush(timeout)

    fake = Slow(larger_than(500))
    producer, left = ResultProducer("results", fake.made), of_one_request(*[1000] * 20)
    while left:
        began = clock[0]
        delivery = producer.deliver(left)
        assert clock[0] - began < _TIMEOUTS["idle_in_transaction_session_timeout"] / 1.5
        assert delivery.arrived == [one.number for one in left[: len(delivery.arrived)]] != []
        del left[: len(delivery.arrived)]
        assert bool(delivery.trouble) == bool(left)


def test_sets_are_smaller_once_one_was_refused_and_not_its_records() -> None:
    fake, asked = FakeProducer(larger_than(500)), list[Any]()

    def make(more: Mapping[str, Any]) -> FakeProducer:
        asked.append(more)
        return fake.made(more)

    producer = ResultProducer("results", make)
    assert producer.deliver(batch(1000)).shortened == ["r-0"]
    assert producer.deliver(batch(1, 1000, 1)).shortened == ["r-1"]
    assert producer.deliver(batch(200, 200, 200)).arrived == [0, 1, 2]
    assert producer.deliver(batch(200, 200, 200)).arrived == [0, 1, 2]
    sizes = [more["batch.size"] for more in asked if "batch.size" in more]
    assert sizes == [BATCH // 2, BATCH // 4]


def test_what_finds_no_room_goes_later() -> None:
    fake = FakeProducer(never)
    fake.room = 2

    delivery = ResultProducer("results", lambda _: fake).deliver(batch(1, 1, 1))

    assert delivery.arrived == [0, 1]
    assert delivery.trouble is not None


def test_a_producer_that_is_done_for_is_replaced() -> None:
    fakes = [FakeProducer(lambda _: FATAL), FakeProducer(never)]
    left = iter(fakes)
    producer = ResultProducer("results", lambda _: next(left))

    assert producer.deliver(batch(1)).arrived == []
    assert producer.deliver(batch(1)).arrived == [0]


def test_a_report_that_comes_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_producer, "DELIVERY_TIMEOUT", 0.0)
    monkeypatch.setattr(result_producer, "_REPORT_LATE", 0.0)

    class Late(FakeProducer):
        def flush(self, timeout: float) -> int:
            return len(self._open)

    fake = Late(never)
    delivery = ResultProducer("results", lambda _: fake).deliver(batch(1))
    FakeProducer.flush(fake, 0)

    assert delivery.arrived == []


def test_asks_whether_a_broker_answers() -> None:
    fake = FakeProducer(never)
    producer = ResultProducer("results", lambda _: fake)
    assert producer.reachable()

    fake.reachable = False

    assert not producer.reachable()


def test_what_is_refused_for_another_reason_than_time_is_trouble() -> None:
    """And no sign that its partition takes nothing: others of the batch are confirmed."""
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    class Denying(FakeProducer):
        def flush(self, timeout: float) -> int:
            waiting, self._open = self._open, []
            for n, (_, report) in enumerate(waiting):
                report(denied if n else None, Placed(n))
            return 0

        def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
            leading = {n: SimpleNamespace(leader=1, replicas=[1], isrs=[1]) for n in range(3)}
            return SimpleNamespace(topics={topic: SimpleNamespace(partitions=leading)})

    delivery = ResultProducer("results", lambda _: Denying(never)).deliver(batch(1, 1))
    assert (delivery.arrived, delivery.trouble, delivery.stuck) == ([0], denied.str(), [])


def test_one_whose_records_are_confirmed_has_not_lost_its_brokers() -> None:
    fake, probe = FakeProducer(lambda _: TIMED_OUT), BrokerProbe({})
    producer = ResultProducer("results", lambda _: fake, probe)
    probe.heard(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    producer.deliver(batch(1))
    assert probe._contact.doubtful
    fake.verdict = never
    producer.deliver(batch(1))
    assert not probe._contact.doubtful


def test_properties_that_do_not_fit_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="producer of result records"):
        connect({"bootstrap.servers": "localhost:1", "max.in.flight": 100}, {})


def test_a_transactional_id_meant_for_others_is_not_taken() -> None:
    connect({"bootstrap.servers": "localhost:1", "transactional.id": "x", "acks": "1"}, {})


# When


def steady() -> RelayTiming:
    return RelayTiming(0.0, Breaker(0.5, 10.0, jitter=lambda: 1.0))


def test_looks_at_once_at_the_start() -> None:
    assert steady().pause(0.0) == 0.0


def test_looks_twice_a_second_while_records_come() -> None:
    pace = steady()
    for now in (0.0, 1.0, 2.0):
        pace.worked(3, now)
        assert pace.pause(now) == SHORTEST


def test_a_full_batch_has_more_behind_it() -> None:
    pace = steady()
    pace.worked(AT_ONCE, 1.0)

    assert pace.pause(1.0) == 0.0


def test_looks_less_often_when_nothing_comes_and_more_when_it_does_again() -> None:
    pace = steady()
    pauses = []
    for now in range(6):
        pace.worked(0, float(now))
        pauses.append(pace.pause(float(now)))
    assert pauses == [0.5, 1.0, 2.0, 4.0, LONGEST, LONGEST]

    pace.worked(1, 10.0)

    assert pace.pause(10.0) == SHORTEST


def test_is_woken() -> None:
    pace = steady()
    for now in range(6):
        pace.worked(0, float(now))

    pace.wake(6.0)

    assert pace.pause(6.0) == 0.0


def test_is_not_woken_while_a_service_is_away() -> None:
    pace = steady()
    pauses = []
    for now in range(7):
        pace.failed(float(now))
        pace.wake(float(now))
        pauses.append(pace.pause(float(now)))

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert pace.away

    pace.worked(1, 20.0)

    assert not pace.away
    assert pace.pause(20.0) == SHORTEST


# Where


def test_records_that_are_left_are_passed_by_until_the_newest_and_tried_again_later() -> None:
    place = RelayPlace()
    place.took(500, left=False, more=True, now=0.0)
    assert place.begin(0.0) == 0
    place.took(1000, left=True, more=True, now=1.0)
    assert place.begin(2 * AGAIN) == 1000, "not before the newest"
    place.took(1300, left=False, more=False, now=2.0)
    assert place.begin(AGAIN) == 1300, "not before it is time"
    place.took(0, left=False, more=False, now=3.0)
    assert place.begin(AGAIN + 1.0) == 0
    place.took(1300, left=False, more=False, now=AGAIN + 1.0)
    assert place.begin(AGAIN + 1.0) == 0


def test_records_that_are_left_are_tried_in_between_where_the_newest_is_never_reached() -> None:
    place, now = RelayPlace(), 0.0
    place.took(500, left=True, more=True, now=now)
    place.took(1000, left=True, more=True, now=now)
    taken, back = 1000, []
    while len(back) < 4 and now < 500.0:  # five hundred and more come with each round
        now += 1.0
        if (after := place.begin(now)) == taken:
            taken += 500
            place.took(taken, left=False, more=True, now=now)
            continue
        back.append((now, after))
        # Those before 500 are still left; of the others two batches arrive.
        last = {0: 500, 500: 900, 900: taken}[after]
        place.took(last, left=after == 0, more=True, now=now)
    assert back == [(30.0, 0), (60.0, 500), (61.0, 900), (62.0, 0)]


def test_once_all_that_was_left_has_arrived_the_oldest_are_taken_again() -> None:
    place = RelayPlace()
    place.took(500, left=True, more=True, now=0.0)
    place.took(1000, left=False, more=True, now=0.0)
    assert place.begin(BETWEEN) == 0
    place.took(400, left=False, more=True, now=BETWEEN)
    assert place.begin(BETWEEN) == 400, "at once, as they arrive"
    place.took(1200, left=False, more=True, now=BETWEEN)
    assert place.begin(BETWEEN) == 0
    place.took(1700, left=False, more=True, now=BETWEEN)
    assert place.begin(9 * BETWEEN) == 0
    place.took(2200, left=True, more=True, now=9 * BETWEEN)
    assert place.begin(10 * BETWEEN) == 0
    place.took(0, left=False, more=False, now=10 * BETWEEN)
    assert place.begin(10 * BETWEEN) == 0, "somebody else has sent them"


class ThreePartitions(FakeProducer):
    """With brokers that confirm nothing of the last one, and say this of it."""

    def __init__(self, lonely: SimpleNamespace) -> None:
        super().__init__(never)
        self._lonely = lonely

    def flush(self, timeout: float) -> int:
        waiting, self._open = self._open, []
        keys = [message["key"] for message in self.sent[len(self.sent) - len(waiting) :]]
        for key, (_, report) in zip(keys, waiting, strict=True):
            partition = partition_of(key, 3)
            report(TIMED_OUT if partition == 2 else None, Placed(partition))
        return 0

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        whole = SimpleNamespace(leader=1, replicas=[1, 2], isrs=[1, 2])
        found = {0: whole, 1: whole, 2: self._lonely}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=found)})


@pytest.mark.parametrize(
    "leader, in_sync", [(-1, 0), (1, 1), (1, 2)], ids=["no leader", "too few", "not reached"]
)
def test_an_instance_that_begins_passes_by_more_than_a_batch_that_nobody_takes(
    monkeypatch: pytest.MonkeyPatch, leader: int, in_sync: int
) -> None:
    """Its first batches hold nothing else, which says nothing of other partitions."""
    lonely = SimpleNamespace(leader=leader, replicas=[1, 2], isrs=[1, 2][:in_sync])
    names = [f"r-{n}" for n in range(4 * AT_ONCE)]
    held = [name for name in names if partition_of(name.encode(), 3) == 2][: AT_ONCE + 10]
    others = [name for name in names if partition_of(name.encode(), 3) != 2][:10]
    made = datetime(2030, 1, 1, tzinfo=UTC)
    table = {
        number: StoredResult(number, made, ResultRecord(name, "t", "done", "ok"))
        for number, name in enumerate([*held, *others], 1)
    }

    def take(_cursor: Any, _schema: str, most: int, *, after: int) -> list[StoredResult]:
        return [stored for number, stored in table.items() if number > after][:most]

    def remove(_cursor: Any, _schema: str, numbers: list[int]) -> None:
        for number in numbers:
            del table[number]

    monkeypatch.setattr(result_relay, "take_results", take)
    monkeypatch.setattr(result_relay, "remove_results", remove)
    monkeypatch.setattr(ResultRelay, "_open", lambda _: MagicMock())
    settings = MaintenanceSettings(
        instance="i", database_url="", schema="s", redis_url="", redis_prefix="", log={}
    )
    relay = ResultRelay(settings, None, get_logger("test"))
    producer = ResultProducer("results", lambda _: ThreePartitions(lonely))
    rounds = [relay._round(producer) for _ in range(2)]
    assert [(done.trouble, done.arrived) for done in rounds] == [(None, 0), (None, len(others))]
    assert {stored.record.request_id for stored in table.values()} == set(held)
