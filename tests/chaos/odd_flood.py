"""Floods a consumer with generated messages, most of them malformed, and checks each one's end.

    scripts/malformed --count 1000000 --seed 7

Each message has to end as `odd_messages` says: one dead letter at its place and no row, or one row
and no dead letter. Counters have to add up, no worker may die, and the consumer has to end with
code 0. The last line is the verdict; exit code 1 where something is not as it has to be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from feedback.journal.migrations import migrate
from stack import Stack
from tests.chaos.odd_messages import LETTER, MAX_PAYLOAD, UNKNOWN, Generator, Message
from tests.support import run
from tests.support.service import Instance
from tests.support.waiting import eventually

PARTITIONS = 6
SHOWN = 20
STALLED = 120.0
"""Seconds without a new row or dead letter after which the rest counts as missing."""
ANY_TIME = {
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
"""Of the topic: producers may say any time, and nothing is deleted for it."""


class Flood:
    """One run: a topic and a schema of its own."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack = stack
        self._name = f"odd{uuid.uuid4().hex[:10]}"
        self._log = folder / "consumer.log"
        self._by_id: dict[str, Message] = {}
        self._letters: dict[tuple[int, int], Message] = {}
        self.problems: list[str] = []
        self.ends: Counter[str] = Counter()
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        topic = NewTopic(self._name, PARTITIONS, 1, config=ANY_TIME)
        admin.create_topics([topic])[self._name].result(30)
        migrate(stack.database, self._name)

    def send(self, count: int, seed: int) -> None:
        """Sends the messages and keeps what has to become of each."""
        producer = Producer({
            "bootstrap.servers": self._stack.kafka, "linger.ms": 20, "partitioner": "random",
            "enable.idempotence": True,
        })  # fmt: skip
        generator = Generator(seed)
        for _ in range(count):
            self._send(producer, generator.next())
        producer.flush(120)
        self.ends.update(m.end for m in (*self._by_id.values(), *self._letters.values()))

    def _send(self, producer: Producer, message: Message) -> None:
        def told(error: KafkaError | None, delivered: Delivered) -> None:
            if error is not None:
                self.problems.append(f"not sent: {message.change}: {error}")
            elif message.end == LETTER:
                self._letters[delivered.partition() or 0, delivered.offset() or 0] = message
            else:
                self._by_id[message.id] = message

        while True:
            try:
                producer.produce(
                    self._name, message.value, message.key, headers=message.headers,
                    timestamp=message.timestamp, on_delivery=told,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)

    @property
    def changes(self) -> set[str]:
        """What was changed in the messages that were sent."""
        sent = (*self._by_id.values(), *self._letters.values())
        return {message.change for message in sent if message.change}

    def consume(self) -> None:
        """Runs a consumer until nothing is missing, or nothing more comes."""
        instance = Instance(self._settings, self._log)
        try:
            self._wait(instance)
            self._check_log(instance, instance.stop())
        finally:
            instance.close()

    @property
    def _settings(self) -> dict[str, str]:
        return {
            "ONCEPOOL_APP": "tests.support.odd_app:app",
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": self._stack.kafka,
            "ONCEPOOL_KAFKA_TOPICS": self._name,
            "ONCEPOOL_KAFKA_GROUP": self._name,
            "ONCEPOOL_DATABASE_URL": self._stack.database,
            "ONCEPOOL_DATABASE_SCHEMA": self._name,
            "ONCEPOOL_REDIS_URL": self._stack.redis,
            "ONCEPOOL_REDIS_PREFIX": self._name,
            "ONCEPOOL_WORKERS": "2",
            "ONCEPOOL_MAX_PAYLOAD": str(MAX_PAYLOAD),
        }

    def _wait(self, instance: Instance) -> None:
        wanted, seen, since = sum(self.ends.values()), 0, time.monotonic()
        while instance.alive and seen < wanted and time.monotonic() - since < STALLED:
            time.sleep(0.2)
            rows, letters, _ = next(self._rows(
                "SELECT (SELECT count(*) FROM {s}.requests), (SELECT count(*) FROM"
                " {s}.dead_letters), 0"
            ))  # fmt: skip
            if rows + letters > seen:
                seen, since = rows + letters, time.monotonic()

    def _rows(self, statement: str) -> Iterator[tuple[int, int, int]]:
        database = self._stack.database
        with psycopg.connect(database) as connection, connection.cursor(name="flood") as cursor:
            cursor.itersize = 10_000
            cursor.execute(sql.SQL(statement).format(s=sql.Identifier(self._name)))
            yield from cursor

    def _check_log(self, instance: Instance, code: int) -> None:
        if code != 0:
            self.problems.append(f"the consumer ended with code {code}")
        for line in instance.log.splitlines():
            if '"level":"error"' in line or "worker died" in line:
                self.problems.append(f"log: {line[:300]}")

    def check(self) -> None:
        """Compares what stands in the journal with what has to."""
        rows, letters = dict(self._by_id), dict(self._letters)
        for name, state, code in self._rows("SELECT id, state, code FROM {s}.requests"):
            message = rows.pop(str(name), None)
            found = f"{state}/{code}"
            if message is None:
                self.problems.append(f"a row that nobody sent: {str(name)[:60]!r} {found}")
            elif found != message.end:
                self._wrong(message, found)
        for partition, offset, _ in self._rows(
            "SELECT partition, kafka_offset, 0 FROM {s}.dead_letters"
        ):
            if letters.pop((partition, offset), None) is None:
                self.problems.append(f"a dead letter too many, at {partition}/{offset}")
        for message in (*rows.values(), *letters.values()):
            self._wrong(message, "nothing")
        self._check_counters()

    def _wrong(self, message: Message, found: str) -> None:
        value = None if message.value is None else message.value[:60]
        self.problems.append(
            f"{message.change or 'valid'}: {found}, not {message.end}: "
            f"{[(n[:30], v and v[:60]) for n, v in message.headers[:6]]} {value!r}"
        )

    def _check_counters(self) -> None:
        counts: Counter[str] = Counter()

        def counted() -> bool:
            counts.clear()
            for state, code, n in self._rows(
                "SELECT state, code, sum(n)::bigint FROM {s}.counters GROUP BY 1, 2"
            ):
                counts[LETTER if str(state) == "dead_letter" else f"{state}/{code}"] += n
            # Each try of an unknown type waits anew.
            counts[UNKNOWN] = min(counts[UNKNOWN], self.ends[UNKNOWN])
            return counts == self.ends

        try:
            eventually(counted, 10.0)
        except AssertionError:
            wrong = {end: (counts[end], n) for end, n in self.ends.items() if counts[end] != n}
            more = {end: n for end, n in counts.items() if end not in self.ends}
            self.problems.append(f"counted, sent: {wrong}; counted besides: {more}")


def flood(stack: Stack, count: int, seed: int, folder: Path) -> Flood:
    """Sends, consumes and checks."""
    made = Flood(stack, folder)
    made.send(count, seed)
    made.consume()
    made.check()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    run.begin()
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = flood(run.own_stack("flood"), options.count, options.seed, Path(folder))
    finally:
        run.end()
    lines = [f"{n:>10,} {end}" for end, n in made.ends.most_common()]
    lines += [f"problem: {problem}" for problem in made.problems[:SHOWN]]
    total = sum(made.ends.values())
    lines += [f"seed {options.seed}: {total:,} messages, {len(made.problems):,} problems", ""]
    sys.stdout.write("\n".join(lines))
    return 1 if made.problems else 0


if __name__ == "__main__":
    sys.exit(main())
