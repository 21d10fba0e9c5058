"""What stands below a committed offset, and what is said of it, on a real broker: whatever it is,
a line in the log, no second effect, no loop, and intake goes on.

Each case has a partition of its own; all of them share two instances, one after the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from consumer.intake.offset_metadata import gap_of
from tests.support.committed_offsets import commit_as_others
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

(OF_OTHERS, ABOVE, CUT, PLAIN, CUT_BEHIND, ABORTED, ALL_ABORTED, NEWER, NO_NUMBER, BEYOND,
 BEYOND_MARK) = range(11)  # fmt: skip
PARTITIONS = 11
SENT = 4
"""Messages of each partition at first, but for those with transactions."""
SQUEEZED, EXPIRED = 0, 1
"""Partitions of the topic that the broker cleans."""
DEAD = "1;someone-7;"
DAY_MS = 24 * 3600 * 1000


class Places:
    """Messages in partitions, effects of them, and committed offsets as somebody else sets them."""

    def __init__(self, bench: Bench, cleaned: str, folder: Path) -> None:
        self.bench, self.cleaned = bench, cleaned
        self._entries = folder / "entries"
        bench.query(
            f"CREATE TABLE {bench.schema}.steps"
            " (seq bigserial, id text, key text, number int, main int)"
        )
        self.settings = {
            "ONCEPOOL_APP": "tests.support.steps_app:app",
            "ONCEPOOL_KAFKA_TOPICS": f"{bench.topic},{cleaned}",
            "STEPS_TABLE": f"{bench.schema}.steps",
            "STEPS_ENTRIES": str(self._entries),
        }
        self._producer = self._made()
        self._admin = AdminClient({"bootstrap.servers": bench.stack.kafka})

    def _made(self, **more: str) -> Producer:
        return Producer({"bootstrap.servers": self.bench.stack.kafka, **more})

    def send(
        self, partition: int, name: str, *, topic: str = "", kind: str = "step", age_ms: int = 0,
        key: str | None = None, by: Producer | None = None,
    ) -> None:  # fmt: skip
        """One message, which is there when this returns; of an open transaction `by` tells."""
        producer = by or self._producer
        producer.produce(
            topic or self.bench.topic, b'{"key": "k", "number": 1}', key, partition,
            timestamp=int(time.time() * 1000) - age_ms,
            headers=[("ce_id", name), ("ce_type", kind)],
        )  # fmt: skip
        assert producer.flush(30) == 0

    def send_in_transactions(self, partition: int, **committed: bool) -> None:
        """One transaction for each name, which lands or is aborted."""
        producer = self._made(**{"transactional.id": f"{self.bench.topic}-{partition}"})
        producer.init_transactions(30)
        for name, lands in committed.items():
            producer.begin_transaction()
            self.send(partition, f"{partition}-{name}", by=producer)
            (producer.commit_transaction if lands else producer.abort_transaction)(30)

    def cut(self, partition: int, offset: int) -> None:
        """Deletes records below an offset."""
        wanted = TopicPartition(self.bench.topic, partition, offset)
        next(iter(self._admin.delete_records([wanted]).values())).result(30)

    def _consumer(self, group: str) -> Consumer:
        # Of a log whose beginning goes meanwhile it reads what is left.
        return Consumer(
            {
                "bootstrap.servers": self.bench.stack.kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
            }
        )

    def commit(self, offsets: Mapping[tuple[str, int], tuple[int, str]]) -> None:
        """As somebody else does, in an empty group."""
        commit_as_others(self.bench.stack.kafka, self.bench.group, offsets)

    def gaps(self) -> list[Any]:
        """What the group's committed offsets say that has to be read again."""
        places = [(self.bench.topic, n) for n in range(PARTITIONS)]
        places += [(self.cleaned, n) for n in (SQUEEZED, EXPIRED)]
        consumer = self._consumer(self.bench.group)
        found = consumer.committed([TopicPartition(*place) for place in places], 30)
        consumer.close()
        told = ((p.topic, p.partition, gap_of(p.offset, p.metadata)) for p in found)
        return [gap for gap in told if gap[2] is not None]

    def read_log(self, topic: str, partition: int, end: int) -> list[int]:
        """Offsets that the log has below `end`, whose record has to be there."""
        consumer = self._consumer("looks")
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
        consumer.assign([TopicPartition(topic, partition, low)])
        found: list[int] = []
        until = time.monotonic() + 30
        while (not found or found[-1] < end - 1) and time.monotonic() < until:
            found += [m.offset() for m in consumer.consume(100, 0.1) if m.error() is None]
        consumer.close()
        return found

    @property
    def entries(self) -> Counter[str]:
        return Counter(self._entries.read_text().split()) if self._entries.exists() else Counter()

    @property
    def effects(self) -> Counter[str]:
        return Counter(
            str(name) for [name] in self.bench.query(f"SELECT id FROM {self.bench.schema}.steps")
        )

    def has(self, expected: set[str], log: Callable[[], str]) -> None:
        """Waits for these effects, and that there is no other and none twice."""
        eventually(
            lambda: self.effects.keys() >= expected, WAIT,
            lambda: f"missing {expected - self.effects.keys()}\n{log()}",
        )  # fmt: skip
        assert self.effects == Counter(expected)
        assert self.entries == Counter(expected)

    def clean_often(self) -> None:
        """The broker looks for what is to be compacted, or has expired, five times a second."""
        [node] = self._admin.describe_cluster().result(30).nodes
        entry = ConfigEntry(
            "log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET
        )
        broker = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
        next(iter(self._admin.incremental_alter_configs([broker]).values())).result(30)


def names(partition: int, *numbers: int) -> set[str]:
    return {f"{partition}-{number}" for number in numbers}


def fill_cleaned(places: Places) -> None:
    """Ten messages in each partition. Of the one what has a newer message of its key goes, of the
    other what is a day old."""
    places.clean_often()
    for number in range(10):
        places.send(
            SQUEEZED, f"squeezed-{number}", topic=places.cleaned, key=f"k{number % 4}"
        )  # fmt: skip
    for number in range(7):
        age = DAY_MS if number < 6 else 0
        places.send(
            EXPIRED, f"expired-{number}", topic=places.cleaned, key=f"k{number}", age_ms=age
        )
    # Compaction would put them into one segment with what comes next, which keeps that from expiry.
    eventually(lambda: places.read_log(places.cleaned, EXPIRED, 7) == [6], WAIT)
    for number in range(7, 10):
        places.send(EXPIRED, f"expired-{number}", topic=places.cleaned, key=f"k{number}")


class Cleaned(NamedTuple):
    squeezed: list[int]
    expired: list[int]


def cleaned(places: Places) -> Cleaned:
    """What is left, once something has gone of both."""

    def left() -> Cleaned:
        return Cleaned(*(places.read_log(places.cleaned, n, 10) for n in (SQUEEZED, EXPIRED)))

    eventually(lambda: len(left().squeezed) <= 6 and left().expired == [6, 7, 8, 9], WAIT, left)
    return left()


def test_a_gap_of_any_kind_is_a_line_and_no_second_effect(
    bench: Bench, topic: Callable[..., str], tmp_path: Path
) -> None:
    configs = {
        "cleanup.policy": "compact,delete", "retention.ms": "3600000", "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0",
    }  # fmt: skip
    places = Places(bench, topic(partitions=2, **configs), tmp_path)
    fill_cleaned(places)
    for partition in set(range(PARTITIONS)) - {ABORTED, ALL_ABORTED}:
        for number in range(SENT):
            places.send(partition, f"{partition}-{number}")
    # Each transaction is a record and its end, which is an offset, too.
    places.send_in_transactions(ABORTED, **{"0": True, "1": False, "2": True, "3": False})
    places.send_in_transactions(ALL_ABORTED, **{"0": False, "1": False})
    places.cut(CUT, 2)
    left = cleaned(places)
    assert left.squeezed[0] > 0
    assert sorted(set(range(10)) - set(left.squeezed)) != []

    own = bench.topic
    places.commit(
        {
            (own, OF_OTHERS): (2, "of another program"),
            (own, ABOVE): (2, f"{DEAD}99"),
            (own, CUT): (3, f"{DEAD}0"),  # and its beginning is gone
            (own, PLAIN): (3, f"{DEAD}0"),
            (own, CUT_BEHIND): (2, ""),
            (own, ABORTED): (8, f"{DEAD}0"),
            (own, ALL_ABORTED): (4, f"{DEAD}0"),
            (own, NEWER): (1, "2;someone-7;0;0;0;and more"),
            (own, NO_NUMBER): (2, f"{DEAD}9999999999999999999999"),
            (own, BEYOND): (2, ""),
            (own, BEYOND_MARK): (SENT, ""),
            (places.cleaned, SQUEEZED): (9, f"{DEAD}0"),
            (places.cleaned, EXPIRED): (8, f"{DEAD}0;2"),
        }
    )
    # Where the client would go to the end of a log that begins behind the mark.
    first = bench.start(**places.settings, ONCEPOOL_AUTO_OFFSET_RESET="latest")
    expected = (
        names(OF_OTHERS, 2, 3) | names(ABOVE, 2, 3) | names(CUT, 2, 3) | names(PLAIN, 0, 1, 2, 3)
        | names(CUT_BEHIND, 2, 3) | names(ABORTED, 0, 2) | names(NEWER, 1, 2, 3)
        | names(NO_NUMBER, 2, 3) | names(BEYOND, 2, 3)
        | {f"squeezed-{n}" for n in left.squeezed} | {f"expired-{n}" for n in left.expired}
    )  # fmt: skip
    places.has(expected, lambda: first.log)
    first.says("nothing is read again: the low mark makes no sense", 2)
    first.says("the log begins behind the low mark", 2)
    first.says("reading again what was not finished", 6)
    assert first.stop() == 0

    # An operator sets offsets, which have no metadata then, or logs are cut off, while nobody runs.
    for number in (SENT, SENT + 1):
        for partition in range(PARTITIONS):
            kind = "once" if partition == BEYOND_MARK else "step"
            places.send(partition, f"{partition}-{number}", kind=kind)
    places.cut(CUT_BEHIND, SENT + 1)
    places.commit(
        {
            (own, OF_OTHERS): (0, ""),  # earlier: what was never run is, the rest is answered
            (own, PLAIN): (SENT + 1, ""),  # later: what lies between is left out
            (own, BEYOND): (100, ""),  # behind the end of the log, from where the client goes back
            (own, BEYOND_MARK): (100, f"{DEAD}50"),
        }
    )
    second = bench.start(**places.settings)
    second.says("a topic was made anew, or its log cut off")
    expected |= {f"{p}-{n}" for p in range(PARTITIONS) for n in (SENT, SENT + 1)}
    expected -= names(PLAIN, SENT) | names(CUT_BEHIND, SENT)
    expected |= names(OF_OTHERS, 0, 1) | names(BEYOND, 0, 1) | names(BEYOND_MARK, 0, 1, 2, 3)
    places.has(expected, lambda: second.log)
    for partition in range(PARTITIONS):
        places.send(partition, f"{partition}-last")
    expected |= {f"{partition}-last" for partition in range(PARTITIONS)}
    places.has(expected, lambda: second.log)
    assert second.stop() == 0
    assert places.gaps() == [], "the next one would read something again"
