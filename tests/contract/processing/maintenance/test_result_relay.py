"""The thread that sends result records, on a real PostgreSQL and with a producer that we hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaError

from feedback.journal.result_outbox import ResultRecord, add_results
from processing.logs import get_logger
from processing.maintenance.result_producer import ResultProducer
from processing.maintenance.result_relay import ResultRelay
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.fake_result_producer import FakeProducer, never
from tests.support.waiting import eventually

Start = Callable[[FakeProducer], ResultRelay]


@pytest.fixture
def database(stack: Stack, schema: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(stack.database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def start(stack: Stack, schema: str) -> Iterator[Start]:
    settings = MaintenanceSettings(
        instance=schema,
        database_url=stack.database,
        schema=schema,
        redis_url=stack.redis,
        redis_prefix="none",
        log={},
    )
    senders: list[ResultRelay] = []

    def make(fake: FakeProducer) -> ResultRelay:
        log = get_logger("oncepool.maintenance")
        senders.append(ResultRelay(settings, ResultProducer("results", lambda _: fake), log))
        senders[-1].start()
        return senders[-1]

    yield make
    for sender in senders:
        sender.stop()
    for sender in senders:
        sender.join(60)


def add(database: psycopg.Connection[Any], schema: str, *numbers: int) -> None:
    records = [ResultRecord(f"r-{n}", "t", "done", "ok") for n in numbers]
    add_results(database.cursor(), schema, records)


def waiting(database: psycopg.Connection[Any], schema: str) -> list[str]:
    rows = database.execute(f"SELECT request_id FROM {schema}.results ORDER BY id")
    return [row[0] for row in rows]


def sent(fake: FakeProducer) -> list[str]:
    return [message["key"].decode() for message in fake.sent]


def test_a_crash_between_sending_and_deleting_sends_twice(
    start: Start, database: psycopg.Connection[Any], schema: str
) -> None:
    cuts = [True]

    def cut_once(values: list[bytes]) -> KafkaError | None:
        if cuts:
            cuts.pop()
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = %s",
                [f"oncepool results {schema}"],
            )
        return None

    add(database, schema, 1, 2)
    fake = FakeProducer(cut_once)
    start(fake)

    eventually(lambda: waiting(database, schema) == [])
    assert sent(fake) == ["r-1", "r-2", "r-1", "r-2"]


def test_what_did_not_arrive_stays_and_goes_again(
    start: Start, database: psycopg.Connection[Any], schema: str
) -> None:
    away = [True]
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    fake = FakeProducer(lambda _: timed_out if away else None)
    add(database, schema, 1, 2)
    start(fake)
    eventually(lambda: len(fake.sent) >= 2)
    assert waiting(database, schema) == ["r-1", "r-2"]

    away.clear()

    eventually(lambda: waiting(database, schema) == [])


def test_no_transaction_is_open_while_no_broker_answers(
    start: Start, database: psycopg.Connection[Any], schema: str
) -> None:
    fake = FakeProducer(lambda _: KafkaError(KafkaError._MSG_TIMED_OUT))
    fake.reachable = False
    add(database, schema, 1)
    start(fake)

    eventually(lambda: fake.probes >= 2)

    assert len(fake.sent) == 1
    open_ones = database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s",
        [f"oncepool results {schema}"],
    ).fetchone()
    assert open_ones == (0,)


def test_a_wake_brings_the_next_look_forward(
    start: Start, database: psycopg.Connection[Any], schema: str
) -> None:
    fake = FakeProducer(never)
    sender = start(fake)

    def brought_forward() -> bool:
        eventually(lambda: sender._pace.pause(time.monotonic()) > 3.0)  # looked in vain for long
        before, begun = len(fake.sent), time.monotonic()
        add(database, schema, 1)
        sender.wake()
        eventually(lambda: len(fake.sent) > before)
        return time.monotonic() - begun < 2.5

    # Where others kept it from its turn, it is seen the next time.
    eventually(brought_forward)


def test_a_stop_sends_what_waits(
    start: Start, database: psycopg.Connection[Any], schema: str
) -> None:
    fake = FakeProducer(never)
    sender = start(fake)
    add(database, schema, *range(1100))

    sender.stop()
    sender.join(60)

    assert waiting(database, schema) == []
    assert len(fake.sent) == 1100
