"""Where the benchmarks of the outbox work: a database with an outbox, and a topic."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from feedback import outbox
from feedback.outbox.migrations import migrate
from feedback.outbox.names import DEFAULT_SENDER
from feedback.outbox.relay import Relay, Route
from feedback.outbox.rows import shard_of
from stack import Stack

SCHEMA: Final = "oncepool_outbox"
PAYLOAD: Final = {"text": "x" * 180}
"""200 bytes."""
PARTITIONS: Final = 6
KEYS: Final = 1_000
SHARDS_OF_KEYS: Final = [shard_of(DEFAULT_SENDER, f"k{n}".encode()) for n in range(KEYS)]
"""By the number in a key's name."""
_CLONE: Final = f"""
INSERT INTO {SCHEMA}.requests (id, type, sender, key, payload, headers, fingerprint, shard,
    created_at)
SELECT 'b' || n || gen_random_uuid(), r.type, r.sender, convert_to('k' || n %% {KEYS}, 'UTF8'),
    r.payload, r.headers, r.fingerprint, (%(shards)s::smallint[])[n %% {KEYS} + 1], r.created_at
FROM {SCHEMA}.requests r CROSS JOIN generate_series(1, %(copies)s) AS n WHERE r.id = %(id)s
"""


class OutboxPlace:
    """One, and a connection to it in autocommit mode."""

    def __init__(self, stack: Stack, **config: str) -> None:
        """`config`: of its topic."""
        self.stack = stack
        self.topic = f"bench-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        made = admin.create_topics([NewTopic(self.topic, num_partitions=PARTITIONS, config=config)])
        made[self.topic].result(30)
        self.connection = psycopg.connect(stack.database, autocommit=True)
        migrate(self.connection, SCHEMA, [])

    @property
    def environment(self) -> dict[str, str]:
        """Of programs that work here."""
        return {
            **os.environ,
            "ONCEPOOL_OUTBOX_DATABASE_URL": self.stack.database,
            "ONCEPOOL_OUTBOX_SCHEMA": SCHEMA,
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": self.stack.kafka,
            "ONCEPOOL_KAFKA_TOPIC": self.topic,
        }

    def run(self, statement: str) -> None:
        """Executes one."""
        self.connection.execute(statement.encode())

    def fill(self, rows: int) -> None:
        """So many rows and no others, of a thousand keys, as autovacuum has them after a while."""
        self.run(f"TRUNCATE {SCHEMA}.requests")
        self.add(rows)
        self.run(f"VACUUM ANALYZE {SCHEMA}.requests")

    def add(self, rows: int) -> None:
        """So many more: one, and its copies in one statement."""
        id_ = outbox.add(self.connection, "bench", PAYLOAD)
        values = {"shards": SHARDS_OF_KEYS, "copies": rows - 1, "id": id_}
        self.connection.execute(_CLONE.encode(), values)

    @contextmanager
    def relay(self) -> Iterator[Relay]:
        """One, in this process."""
        route = Route(self.topic, {"bootstrap.servers": self.stack.kafka})
        with Relay(self.stack.database, {"default": route}, schema=SCHEMA) as relay:
            yield relay
