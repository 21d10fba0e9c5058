"""The consumer that a good engineer writes in an afternoon: one process of a group, by batches.

    python -m benchmarks.afternoon HANDLER wait|pipeline

Reads KAFKA, TOPIC, GROUP, DATABASE, REDIS, SCHEMA and PREFIX from the environment; ends at SIGTERM.
Up to 500 messages are one transaction: rows of new ids by one INSERT, the handler's own INSERT for
each of these, with or without libpq's pipeline mode; then COMMIT, statuses by a pipeline of SETs,
and the offsets. No worker processes, no time limits; a message that fails fails its batch.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg
import redis
from confluent_kafka import Consumer, Message

SCHEMA = os.environ.get("SCHEMA", "afternoon")
BATCH = 500
CLAIM = f"""INSERT INTO {SCHEMA}.plain (id, type, state)
SELECT id, %s, 'done' FROM unnest(%s::text[]) AS id ON CONFLICT DO NOTHING RETURNING id"""
INSERT = f"INSERT INTO {SCHEMA}.effects (id, amount) VALUES (%s, %s)"
COPY = f"COPY {SCHEMA}.effects (id, amount) FROM STDIN (FORMAT binary)"


class Afternoon:
    """Reads, dedups, runs, tells."""

    def __init__(self, handler: str, *, pipeline: bool) -> None:
        self._handler = handler
        self._pipeline = pipeline
        self._stopping = False
        self._prefix = f"{os.environ['PREFIX']}:status:"
        self._connection = psycopg.connect(os.environ["DATABASE"], autocommit=True)
        self._redis = redis.Redis.from_url(os.environ["REDIS"])
        self._consumer = Consumer(
            {
                "bootstrap.servers": os.environ["KAFKA"],
                "group.id": os.environ["GROUP"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self._stopping = True

    def run(self) -> None:
        """Until it is told to stop."""
        self._consumer.subscribe([os.environ["TOPIC"]])
        while not self._stopping:
            messages = [m for m in self._consumer.consume(BATCH, 0.05) if m.error() is None]
            if messages:
                self._take(messages)
        self._consumer.close()

    def _take(self, messages: list[Message]) -> None:
        requests = {_id_of(m): orjson.loads(m.value() or b"null") for m in messages}
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(CLAIM, (self._handler, list(requests)))
            fresh = [name for (name,) in cursor.fetchall()]
            self._effects(cursor, fresh, requests)
        now = datetime.now(UTC).isoformat()
        with self._redis.pipeline(transaction=False) as statuses:
            for name in fresh:
                status = {"id": name, "type": self._handler, "state": "done", "at": now}
                statuses.set(self._prefix + name, orjson.dumps(status), ex=3600)
            statuses.execute()
        self._consumer.commit(asynchronous=True)

    def _effects(self, cursor: psycopg.Cursor[Any], ids: list[str], requests: Any) -> None:
        match self._handler:
            case "bench.insert" if self._pipeline:
                with self._connection.pipeline():
                    self._insert(cursor, ids, requests)
            case "bench.insert":
                self._insert(cursor, ids, requests)
            case "bench.batch":
                with cursor.copy(COPY) as copy:
                    copy.set_types(("text", "int4"))
                    for name in ids:
                        copy.write_row((name, requests[name]["amount"]))

    def _insert(self, cursor: psycopg.Cursor[Any], ids: list[str], requests: Any) -> None:
        for name in ids:
            cursor.execute(INSERT, (name, requests[name]["amount"]))


def _id_of(message: Message) -> str:
    headers: dict[str, Any] = dict(message.headers() or ())
    return str(headers["ce_id"], "utf-8")


if __name__ == "__main__":
    Afternoon(sys.argv[1], pipeline=sys.argv[2] == "pipeline").run()
