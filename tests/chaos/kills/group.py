"""A topic, a schema, and the instances that work on them."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumer.intake.offset_metadata import gap_of
from feedback.journal.migrations import migrate
from stack import Stack
from tests.chaos.kills.load import Load
from tests.chaos.kills.verdict import Books, Step
from tests.support.service import Instance

PARTITIONS = 6
STALLED = 90.0
"""Seconds without progress after which the rest counts as missing; a lease ends sooner."""
CLASSIC = {"ONCEPOOL_KAFKA_PROTOCOL": "classic", "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6"}
PROTOCOLS = {
    "range": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "range"},
    "cooperative-sticky": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "cooperative-sticky"},
    "consumer": {"ONCEPOOL_KAFKA_PROTOCOL": "consumer"},
}
GIVEN_UP = "owners of this partition died one after the other"
POINTED = "tests.chaos.kills.pointed"
"""The program of an instance that takes orders."""


class Group:
    """One for each round."""

    def __init__(
        self, stack: Stack, folder: Path, settings: dict[str, str], tools: random.Random, *,
        program: str = "consumer",
    ) -> None:  # fmt: skip
        """`program`: the module that an instance is."""
        self._stack, self._folder, self._random = stack, folder, tools
        self._program = program
        self.name = f"kills{uuid.uuid4().hex[:10]}"
        self.instances: list[Instance] = []
        self.started = 0
        self.killed: set[int] = set()
        """Main processes that were killed."""
        self.exit_codes: Counter[int] = Counter()
        """Of those that were told to stop."""
        self._entries = folder / f"{self.name}.entries"
        self.orders = folder / f"{self.name}.orders"
        self.orders.mkdir()
        topic = NewTopic(self.name, PARTITIONS, 1)
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        admin.create_topics([topic])[self.name].result(30)
        migrate(stack.database, self.name)
        self.rows(
            "CREATE TABLE {s}.steps (seq bigserial, id text, key text, number int, main int)",
            fetch=False,
        )
        self._looks = Consumer({"bootstrap.servers": stack.kafka, "group.id": self.name})
        self._settings = {
            "ONCEPOOL_APP": "tests.support.steps_app:app",
            "STEPS_TABLE": f"{self.name}.steps",
            "STEPS_ENTRIES": str(self._entries),
            "CHAOS_ORDERS": str(self.orders),
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
            "ONCEPOOL_KAFKA_TOPICS": self.name,
            "ONCEPOOL_KAFKA_GROUP": self.name,
            "ONCEPOOL_DATABASE_URL": stack.database,
            "ONCEPOOL_DATABASE_SCHEMA": self.name,
            "ONCEPOOL_REDIS_URL": stack.redis,
            "ONCEPOOL_REDIS_PREFIX": self.name,
            "ONCEPOOL_WORKERS": "1",
            **settings,
        }

    def rows(self, statement: str, *, fetch: bool = True) -> list[tuple[Any, ...]]:
        """Runs a statement; {s} is the schema."""
        with psycopg.connect(self._stack.database, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("{s}", self.name).encode())
            return cursor.fetchall() if fetch else []

    # Instances

    def start(self, *, wait: bool = False) -> Instance:
        """One more instance."""
        log = self._folder / f"{self.name}-{self.started}.log"
        self.started += 1
        instance = Instance(self._settings, log, program=self._program)
        self.instances.append(instance)
        if wait:
            instance.running()
        return instance

    def kill(self) -> None:
        """SIGKILL to one main process."""
        victim = self.instances.pop(self._random.randrange(len(self.instances)))
        self.killed.add(victim.process.pid)
        victim.kill()

    def stop(self) -> None:
        """SIGTERM to one main process, until it has ended."""
        victim = self.instances.pop(self._random.randrange(len(self.instances)))
        self.exit_codes[victim.stop()] += 1

    def close(self) -> None:
        """Ends all that runs."""
        for instance in self.instances:
            instance.close()
        self._looks.close()

    def committed(self) -> dict[int, TopicPartition]:
        """The group's committed offsets with their metadata, by partition."""
        wanted = [TopicPartition(self.name, n) for n in range(PARTITIONS)]
        return {p.partition: p for p in self._looks.committed(wanted, 10)}

    def calm(self) -> bool:
        """Whether no gap was read again without its mark having moved since."""
        gaps = (gap_of(p.offset, p.metadata) for p in self.committed().values())
        return not any(gap is not None and gap.times for gap in gaps)

    @property
    def given_up(self) -> int:
        """How often a gap was read for the last time."""
        return sum(
            log.read_text().count(GIVEN_UP) for log in self._folder.glob(f"{self.name}-*.log")
        )

    # The end of a round

    def entries(self) -> Counter[str]:
        """Id -> how often its handler was entered."""
        return Counter(self._entries.read_text().split()) if self._entries.exists() else Counter()

    def finish(self, load: Load) -> None:
        """Waits until everything has its end, or nothing more comes."""
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < STALLED:
            ended = self.ended()
            if ended >= load.arrived:
                return
            if ended > seen:
                seen, since = ended, time.monotonic()
            time.sleep(0.2)

    def ended(self) -> int:
        """How many messages have their end."""
        [(rows, letters)] = self.rows(
            "SELECT (SELECT count(*) FROM {s}.requests"
            " WHERE state NOT IN ('running', 'waiting')),"
            " (SELECT count(*) FROM {s}.dead_letters)"
        )
        return int(rows + letters)

    def books(self, load: Load) -> Books:
        """What there is at the end."""
        rows = self.rows("SELECT id, state || '/' || code FROM {s}.requests")
        letters = self.rows("SELECT partition, kafka_offset FROM {s}.dead_letters")
        counted = self.rows("SELECT n FROM {s}.counters WHERE code = 'read_again'")
        return Books(
            sent=load.sent, malformed=load.malformed, not_sent=load.failed,
            steps=[Step(*step) for step in self.rows(
                "SELECT id, key, number, main FROM {s}.steps ORDER BY seq")],
            rows={str(name): str(end) for name, end in rows},
            letters=Counter((int(partition), int(offset)) for partition, offset in letters),
            entries=self.entries(), given_up=self.given_up, read_again=sum(n for [n] in counted),
            killed=frozenset(self.killed), exit_codes=self.exit_codes,
        )  # fmt: skip
