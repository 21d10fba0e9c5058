from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from consumer.config.settings import Settings
from consumer.errors import KafkaRefused
from consumer.intake.kafka import Kafka
from consumer.intake.kafka_log import ClientLog
from consumer.intake.kafka_properties import OURS, properties
from processing.logs import get_logger

BASE: dict[str, Any] = {"kafka_bootstrap_servers": "127.0.0.1:1", "kafka_topics": ["t"]}


def test_what_the_protocol_depends_on_is_set() -> None:
    made = properties(Settings(**BASE), "consumer")
    assert OURS.items() <= made.items()
    assert made["enable.auto.commit"] is False
    assert made["enable.auto.offset.store"] is False
    assert made["enable.partition.eof"] is False
    assert made["auto.offset.reset"] == "earliest"


def test_the_consumer_protocol_leaves_unset_what_the_broker_decides() -> None:
    made = properties(Settings(**BASE), "consumer")
    assert made["group.protocol"] == "consumer"
    forbidden = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    assert not forbidden & made.keys()


def test_the_classic_protocol_gets_assignor_and_session() -> None:
    settings = Settings(**BASE, kafka_protocol="classic", kafka_session_timeout=6)
    made = properties(settings, "classic")
    assert made["partition.assignment.strategy"] == "cooperative-sticky"
    assert (made["session.timeout.ms"], made["heartbeat.interval.ms"]) == (6000, 2000)
    assert properties(Settings(**BASE), "classic")["heartbeat.interval.ms"] == 3000


def test_given_properties_overrule_defaults_but_not_what_is_ours() -> None:
    given = {"queued.max.messages.kbytes": 5, "debug": "cgrp", "client.id": "x"}
    made = properties(Settings(**BASE, kafka_properties=given), "consumer")
    assert made["queued.max.messages.kbytes"] == 5
    assert made["debug"] == "broker,cgrp"
    assert made["client.id"] == "x"


def test_each_protocol_gets_what_it_has_a_meaning_for() -> None:
    given = {"heartbeat.interval.ms": 1000, "group.remote.assignor": "range"}
    settings = Settings(**BASE, kafka_properties=given)
    classic, consumer = (properties(settings, protocol) for protocol in ("classic", "consumer"))
    assert classic["heartbeat.interval.ms"] == 1000
    assert "group.remote.assignor" not in classic
    assert "heartbeat.interval.ms" not in consumer
    assert consumer["group.remote.assignor"] == "range"


@pytest.mark.parametrize("protocol", ["auto", "classic", "consumer"])
def test_librdkafka_takes_them(protocol: str) -> None:
    Kafka(Settings(**BASE, kafka_protocol=protocol), get_logger("test")).close()


def test_a_consumer_that_takes_messages_has_not_lost_its_brokers() -> None:
    kafka = Kafka(Settings(**BASE), get_logger("test"))
    kafka._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    kafka._take([Message("t", error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))])
    assert kafka._brokers._contact.doubtful
    kafka._take([Message("t", partition=0, offset=1, value=b"")])
    assert not kafka._brokers._contact.doubtful
    kafka.close()


def test_while_no_broker_is_heard_it_says_so_and_tells_no_lag() -> None:
    kafka = Kafka(Settings(**BASE), get_logger("test"))
    assert (kafka.brokers_away_for, kafka.lag()) == (None, {"t": 0})
    kafka._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert (kafka.brokers_away_for is None, kafka.lag()) == (False, {})
    kafka._brokers.before_serving()
    kafka._take([Message("t", partition=0, offset=1, value=b"")])
    assert (kafka.brokers_away_for, kafka.lag()) == (None, {"t": 0})
    kafka.close()


def test_a_property_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(KafkaRefused, match=r"no\.such\.property"):
        Kafka(Settings(**BASE, kafka_properties={"no.such.property": 1}), get_logger("test"))


@pytest.fixture
def lost() -> list[str]:
    return []


@pytest.mark.parametrize(
    "facility, text, expected",
    [
        ("FAIL", "[thrd:GroupCoordinator]: GroupCoordinator: h:1: Disconnected (after 9ms)", True),
        ("REQTMOUT", "[thrd:GroupCoordinator]: GroupCoordinator/1: Timed out 1 in-flight", True),
        ("FAIL", "[thrd:h:1/1]: h:1/1: Disconnected", False),
        ("STATE", "[thrd:GroupCoordinator]: GroupCoordinator: changed state UP -> DOWN", False),
        ("FAIL", "no thread's name", False),
    ],
)
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.ERROR])
def test_broken_coordinator_connections_are_told(
    lost: list[str], level: int, facility: str, text: str, expected: bool
) -> None:
    log = ClientLog(lost.append, lambda *_: None)
    log.log(level, "%s [%s] %s", facility, "rdkafka#consumer-1", text)
    assert bool(lost) == expected


def test_a_log_that_ends_before_our_offset_is_told() -> None:
    told: list[tuple[str, int]] = []
    log = ClientLog(lambda _: None, lambda *place: told.append(place))
    line = (
        "a.b-c [7]: offset reset (at offset 50 (leader epoch 0), broker 1) to offset BEGINNING"
        " (leader epoch -1): fetch failed due to requested offset not available on the broker"
    )
    for text in (f"[thrd:main]: {line}", line, "[thrd:main]: a.b-c [7]: something else"):
        log.log(logging.WARNING, "%s [%s] %s", "OFFSET", "rdkafka#consumer-1", text)
    assert told == [("a.b-c", 7)] * 2


def test_a_fatal_line_is_quiet_while_the_error_may_be_mended(
    lost: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = ClientLog(lost.append, lambda *_: None)
    log.quiet_fatal = True
    caplog.set_level(logging.INFO)
    log.log(logging.CRITICAL, "%s [%s] %s", "FATAL", "rdkafka#consumer-1", "[thrd:main]: x")
    assert caplog.records == []
    log.quiet_fatal = False
    log.log(logging.CRITICAL, "%s [%s] %s", "FATAL", "rdkafka#consumer-1", "[thrd:main]: x")
    assert len(caplog.records) == 1
