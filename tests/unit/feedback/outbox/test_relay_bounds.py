"""How much a relay reads at once of what may be of any size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError

from feedback.client.result import Result
from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.outbox.relay.records import LONGEST, PATIENCE, KeptRecords, RecordSource, key_of
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import Status, StatusFields, StatusWrite
from tests.support.kafka_messages import Said

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LARGE = b'"%b"' % (b"x" * 1_000_000)
RECORD = (
    b'{"id":"%d","type":"t","state":"done","code":"ok","at":"2030-01-01T00:00:00Z","result":%b}'
)


class Played:
    """A consumer of messages that are there already."""

    def __init__(self, values: list[bytes]) -> None:
        self._left = [Said(value) for value in values]

    def consume(self, number: int, timeout: float) -> list[Said]:
        taken, self._left = self._left[:number], self._left[number:]
        return taken


def polled(values: list[bytes]) -> list[int]:
    """How many records each poll brings."""
    source = RecordSource("t", "g", {})
    source._consumer = Played(values)
    return [len(source.poll(0.0)) for _ in range(3)]


def test_a_poll_ends_where_its_records_have_no_room() -> None:
    assert polled([RECORD % (n, b"1") for n in range(700)]) == [500, 200, 0]
    assert polled([RECORD % (n, LARGE) for n in range(50)]) == [20, 20, 10]


def test_nothing_more_is_polled_while_what_is_kept_is_large() -> None:
    kept = KeptRecords()
    one = Result("0", "t", State.DONE, "ok", "x" * 1_000_000, NOW)
    kept.add([replace(one, id=str(n)) for n in range(8)], 0.0)
    assert not kept.full
    kept.add([replace(one, id="8")], 0.0)
    assert kept.full
    small = KeptRecords()
    small.add([replace(one, id=str(n), result=None) for n in range(5_000)], 0.0)
    assert small.full


def test_what_a_hung_relay_has_sent_takes_no_room_for_good() -> None:
    kept = KeptRecords()
    large = Result("0", "t", State.DONE, "ok", "x" * 1_000_000, NOW)
    records = [replace(large, id=str(n)) for n in range(9)]
    kept.add(records, 0.0)
    turns = range(0, int(LONGEST + PATIENCE), 5)
    for now in turns:
        kept.renew(kept.fading(now), now)
        assert len(kept.look(now)) == (9 if now < LONGEST else 0)
    assert not kept.full
    kept.add(records[:1], turns[-1])
    assert kept.keys() == {key_of(large)}


class Counting(MemoryStatusStore):
    """Knows how many were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def read_raw(self, ids: Any) -> list[bytes | None]:
        self.asked.append(len(ids))
        return super().read_raw(ids)


def test_fewer_statuses_are_asked_for_where_they_are_large_or_do_not_come() -> None:
    from feedback.outbox.relay.statuses import StatusReader

    store = Counting()
    reader = StatusReader(store)
    ids = [str(n) for n in range(400)]
    assert reader.read(ids) == [None] * 400
    assert store.asked == [100] * 4
    fields = StatusFields("", "t", State.DONE, 1, "ok", 1, NOW, result=LARGE)
    store.write([StatusWrite(id_, fields.encode(), 60) for id_ in ids[:60]])
    store.asked.clear()
    assert [len(reader.read(ids)) for _ in range(4)] == [9, 9, 9, 9]
    assert store.asked == [100, 50, 25, 12]
    store.available = False
    store.asked.clear()
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            reader.read(ids)
    assert store.asked == [6, 3, 1, 1, 1]
    store.available = True
    assert [status and status.id for status in reader.read(["unknown"])] == [None]


def test_a_relay_that_reads_has_not_lost_its_brokers() -> None:
    source = RecordSource("t", "g", {})
    source._consumer = Played([RECORD % (0, b"1")])
    source._probe.heard(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    source.poll(0.0)
    assert not source._probe._contact.doubtful
    source._probe.heard(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    source.poll(0.0)
    assert source._probe._contact.doubtful, "nothing came"


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_a_record_nested_too_deeply_to_be_written_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, kept = RecordSource("t", "g", {}), KeptRecords()
    depths = (1, 490, 505, 1000)
    source._consumer = Played([RECORD % (n, nested(n)) for n in depths])
    kept.add(source.poll(0.0), 0.0)
    keys = kept.keys()
    assert {key.id for key in keys} == {"1", "490"}
    [line] = [record.getMessage() for record in caplog.records]
    assert "nested deeper than 500 levels" in line


@pytest.mark.parametrize("depth", [505, 1000])
def test_a_status_nested_too_deeply_to_be_written_is_none(depth: int) -> None:
    fields = StatusFields("a", "t", State.DONE, 1, "ok", 1, NOW, result=nested(depth))
    with pytest.raises(ValueError, match="nested deeper than 500 levels"):
        Status.decode(fields.encode())
