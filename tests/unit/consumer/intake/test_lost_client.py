"""A client that has lost its brokers, while no other one can be made."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.config.settings import Settings
from consumer.errors import KafkaRefused
from consumer.intake.events import JoinedAnew, Trouble
from consumer.intake.kafka import Kafka
from processing.logs import get_logger
from tests.support.fatal import fail_fatally
from tests.support.thread_starts import refusing
from tests.support.waiting import eventually

GIVEN_UP = KafkaError(
    KafkaError._FATAL,
    f"ConsumerGroupHeartbeat: {KafkaError(KafkaError.INVALID_REQUEST).str()}",
    True,
)


class Rotated:
    """A client whose certificates are in a folder, which may be gone for a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        given: dict[str, Any] = {"security.protocol": "ssl", "ssl.ca.location": str(folder)}
        self.settings = Settings(
            kafka_bootstrap_servers="127.0.0.1:1", kafka_topics=["t"], kafka_properties=given
        )
        self.kafka = Kafka(self.settings, get_logger("test"))

    def poll(self) -> set[type]:
        """Kinds of events but of trouble with the broker, which is not there."""
        return {type(event) for event in self.kafka.poll(10, 0.0)} - {Trouble}


@pytest.fixture
def rotated(tmp_path: Path) -> Rotated:
    return Rotated(tmp_path / "authorities")


def test_as_long_as_no_other_client_can_be_made_the_one_that_is_lost_is_used(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, first = rotated.kafka, rotated.kafka._consumer
    monkeypatch.setattr(kafka._brokers, "lost", lambda _: True)
    rotated.folder.rmdir()
    for _ in range(2):
        assert rotated.poll() == set()
    assert kafka._consumer is first
    assert kafka._brokers._contact.doubtful, "it is asked again"
    rotated.folder.mkdir()
    assert JoinedAnew in rotated.poll()
    assert kafka._consumer is not first
    monkeypatch.undo()
    assert rotated.poll() == set()
    kafka.close()


def test_a_client_that_no_thread_could_be_started_for_is_replaced_all_the_same(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, first = rotated.kafka, rotated.kafka._consumer
    monkeypatch.setattr(kafka._brokers, "lost", lambda _: True)
    with refusing("leave"):
        assert JoinedAnew in rotated.poll()
    assert kafka._consumer is not first
    first.consumer_group_metadata()
    monkeypatch.undo()
    monkeypatch.setattr(kafka._brokers, "_close_at", 0.0)

    def closed() -> bool:
        rotated.poll()
        with suppress(RuntimeError):  # it is closed
            return first.consumer_group_metadata() is None
        return True

    eventually(closed)
    kafka.close()


def test_a_client_is_not_closed_before_there_is_another(rotated: Rotated) -> None:
    """Whoever is to end as no other can be made may poll to the end."""
    kafka = rotated.kafka
    kafka._joined()
    rotated.folder.rmdir()
    with pytest.raises(KafkaRefused, match=r"ssl\.ca\.location"):
        kafka._on_message_error(GIVEN_UP)
    assert rotated.poll() == set()
    kafka.close()


def test_a_client_that_failed_before_its_place_is_left_and_taken_again_ends_no_service(
    rotated: Rotated,
) -> None:
    """As it is between two polls: neither does one of the two calls."""
    kafka, first = rotated.kafka, rotated.kafka._consumer
    kafka._on_assign(first, [])
    fail_fatally(first, GIVEN_UP.str())
    kafka.unsubscribe()
    kafka.subscribe()
    assert kafka._consumer is not first
    said = eventually(lambda: kafka.poll(10, 0.0))  # of its broker, which is not there
    assert not any(isinstance(event, Trouble) and event.ends_service for event in said)
    kafka.close()


def test_who_has_left_joins_once_another_client_can_be_made(rotated: Rotated) -> None:
    now = 1000.0
    kafka = Kafka(rotated.settings, get_logger("test"), lambda: now)
    first = kafka._consumer
    kafka.subscribe()
    kafka.unsubscribe()
    rotated.folder.rmdir()
    kafka.subscribe()
    assert kafka._consumer is first
    rotated.folder.mkdir()
    now += 60
    kafka.poll(1, 0.0)
    assert kafka._consumer is not first
    kafka.close()


def test_what_else_a_client_refuses_is_raised(rotated: Rotated) -> None:
    none = rotated.settings.model_copy(update={"kafka_topics": [""]})
    kafka = Kafka(none, get_logger("test"))
    with pytest.raises(KafkaException, match="_INVALID_ARG"):
        kafka.subscribe()
    kafka.close()
