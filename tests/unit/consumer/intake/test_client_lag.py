"""What a client says that it has not taken yet."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.intake.client_lag import client_lag


class Client:
    """What a consumer knows of its partitions: where it is, and where each ends."""

    def __init__(self, known: dict[tuple[str, int], tuple[int, int]]) -> None:
        self.known = known

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, self.known[p.topic, p.partition][0])
                for p in places]  # fmt: skip

    def get_watermark_offsets(self, at: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached
        end = self.known[at.topic, at.partition][1]
        if end == 0:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 0, end


def lag(known: dict[tuple[str, int], tuple[int, int]]) -> dict[str, int]:
    client: Any = Client(known)
    return client_lag(client, ["a", "b"], known)


def test_it_is_added_up_by_topic() -> None:
    assert lag({("a", 0): (5, 9), ("a", 1): (1, 2), ("b", 0): (3, 3)}) == {"a": 5, "b": 0}


def test_what_was_not_fetched_yet_adds_nothing() -> None:
    assert lag({("a", 0): (-1001, 9), ("a", 1): (4, -1001)}) == {"a": 0, "b": 0}


def test_a_part_of_it_is_not_told_as_all_of_it() -> None:
    assert lag({("a", 0): (5, 9), ("b", 0): (3, 0)}) == {}
