"""What a client has fetched before an outage of all brokers does not say that it is over.

One call of the client hands out the messages and tells of the outage behind them.
"""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer

from consumer.config.settings import Settings
from consumer.intake.events import Polled, Trouble
from consumer.intake.kafka import Kafka
from feedback.client.delivery import Deliveries
from feedback.client.kafka_log import OutageLog
from feedback.client.pending import Submission
from feedback.client.producer import lasting
from feedback.outbox.relay.records import RecordSource
from processing.logs import get_logger
from tests.support.client import drafted
from tests.support.mock_brokers import PLACE, MockBrokers
from tests.support.waiting import eventually

TOPIC = PLACE[0]
MANY = 311
RECORD = b'{"id":"a","type":"t","state":"done","code":"ok","at":"2026-01-01T00:00:00Z"}'


@pytest.fixture
def brokers() -> MockBrokers:
    made = MockBrokers()
    made.write([RECORD] * MANY)
    return made


def test_a_consumer_with_a_backlog_doubts_that_its_brokers_are_there(brokers: MockBrokers) -> None:
    settings = Settings(kafka_bootstrap_servers=brokers.servers, kafka_topics=[TOPIC])
    kafka = Kafka(settings, get_logger("test"))
    brokers.end_behind(kafka._consumer, MANY)
    taken = 0
    told: set[str] = set()

    def all_came() -> bool:
        nonlocal taken
        for event in kafka.poll(1000, 0.1):
            taken += len(event.records) if isinstance(event, Polled) else 0
            told.update([event.code] if isinstance(event, Trouble) else [])
        return taken == MANY and "_ALL_BROKERS_DOWN" in told

    eventually(all_came, 30, lambda: f"{taken} {told}")
    assert kafka._brokers._contact.doubtful
    kafka.close()


def test_a_relay_with_a_backlog_doubts_that_its_brokers_are_there(brokers: MockBrokers) -> None:
    told: list[str] = []
    properties = {
        "bootstrap.servers": brokers.servers,
        "error_cb": lambda error: told.append(error.name()),
    }
    source = RecordSource(TOPIC, "relay", properties)
    source._consumer = Consumer(source._probe.properties(), logger=OutageLog())
    brokers.end_behind(source._consumer, MANY)
    taken = 0

    def all_came() -> bool:
        nonlocal taken
        taken += len(source.poll(0.1))
        return taken == MANY and "_ALL_BROKERS_DOWN" in told

    eventually(all_came, 30, lambda: f"{taken} {told}")
    assert source._probe._contact.doubtful
    source.close()


def test_reports_that_come_before_the_outage_is_told_do_not_end_the_doubt() -> None:
    brokers = MockBrokers()
    told: list[str] = []
    properties = {
        "bootstrap.servers": brokers.servers,
        "linger.ms": 300,  # they go, and are reported, together
        "error_cb": lambda error: told.append(error.name()),
    }
    producer = lasting(properties, 30.0, OutageLog())
    reporting, go_on = threading.Event(), threading.Event()
    reported: list[Submission] = []

    def report(submission: Submission) -> None:
        reported.append(submission)
        reporting.set()
        assert go_on.wait(30)

    deliveries = Deliveries(producer, report)
    for _ in range(3):
        assert deliveries.offer(*drafted("t", 1, key="one"))
    assert reporting.wait(30)
    brokers.end()
    assert deliveries.drain(0.1) >= 3  # who waits hears of nothing
    assert (len(reported), told) == (1, [])
    go_on.set()
    eventually(lambda: len(reported) == 3 and "_ALL_BROKERS_DOWN" in told, 30)
    assert producer._probe is not None
    assert producer._probe._contact.doubtful
    deliveries.close(0)
