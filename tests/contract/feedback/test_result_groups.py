"""Readers of a new results group that come one after the other, on a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition

from feedback.client.result_positions import ResultPositions
from feedback.client.results import Results
from stack import Stack
from tests.support.waiting import eventually

WAIT = 90.0


class Group:
    """A topic of two partitions, and who reads it in one group."""

    def __init__(self, stack: Stack, topic: str, closing: ExitStack) -> None:
        self.name, self.topic, self.kafka = f"group-{uuid.uuid4().hex}", topic, stack.kafka
        self._closing = closing
        self._producer = Producer({"bootstrap.servers": stack.kafka})

    def reader(self) -> Results:
        made = Results(
            {"bootstrap.servers": self.kafka},
            self.topic,
            self.name,
            from_beginning=False,
            closed=lambda _: None,
        )
        self._closing.callback(made.close)
        return made

    def consumer(self, **properties: Any) -> Consumer:
        servers = {"bootstrap.servers": self.kafka, "group.id": self.name}
        made = Consumer({**servers, "enable.auto.commit": False, **properties})
        self._closing.callback(made.close)
        return made

    def write(self, name: str) -> None:
        """One record in each partition: `name-0` and `name-1`."""
        fields = {"type": "t", "state": "done", "code": "ok", "result": None}
        at = datetime.now(UTC).isoformat()
        for number in range(2):
            value = json.dumps({"id": f"{name}-{number}", "at": at, **fields})
            self._producer.produce(self.topic, value.encode(), partition=number)
        assert self._producer.flush(WAIT) == 0

    def committed(self) -> list[int]:
        found = self.consumer().committed([TopicPartition(self.topic, n) for n in range(2)], WAIT)
        return [part.offset for part in found]


@pytest.fixture
def group(stack: Stack, topic: Callable[..., str]) -> Iterator[Group]:
    with ExitStack() as closing:
        yield Group(stack, topic(partitions=2), closing)


def test_what_comes_after_the_first_reader_was_made_comes_to_who_joins_first(
    group: Group,
) -> None:
    group.write("before")
    ResultPositions(group.consumer(), group.topic, grouped=True, from_beginning=False)
    group.write("between")
    came: set[str] = set()
    with group.reader() as second:
        group.write("after")

        def read() -> bool:
            if (result := second.poll(0.1)) is not None:
                came.add(result.id)
            return {"after-0", "after-1"} <= came

        eventually(read, WAIT)
    assert came == {f"{name}-{number}" for name in ("between", "after") for number in range(2)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_left_as_it_stands(group: Group, protocol: str) -> None:
    group.write("before")
    member = group.consumer(**{"group.protocol": protocol})
    member.subscribe([group.topic])
    eventually(lambda: member.poll(0.1) is None and member.assignment(), WAIT)

    made = ResultPositions(group.consumer(), group.topic, grouped=True, from_beginning=False)

    assert [part.offset for part in made.starts] == [1, 1]
    assert group.committed() == [OFFSET_INVALID, OFFSET_INVALID]
