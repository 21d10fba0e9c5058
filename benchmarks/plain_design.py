"""The plain design: kafka-python, a process pool, a transaction and a Redis SET for each message.

    python -m benchmarks.plain_design COUNT poll|message WORKERS

Reads KAFKA, TOPIC, GROUP, DATABASE, REDIS, SCHEMA and PREFIX from the environment. The offset is
committed before the messages run: once for each poll of up to 500, or once for each message. A row
with the request's id keeps a second copy from running; its effect is in the same transaction.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from typing import Any

import psycopg
import redis
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

SCHEMA = os.environ.get("SCHEMA", "plain")
MOST_IN_HAND = 2000

connection: psycopg.Connection[Any]
statuses: redis.Redis


def start_worker() -> None:
    global connection, statuses  # noqa: PLW0603 - what a pool's initializer is for
    connection = psycopg.connect(os.environ["DATABASE"])
    statuses = redis.Redis.from_url(os.environ["REDIS"])


def handle(request_id: str, kind: str, payload: bytes) -> None:
    """Runs one request, unless its id has a row."""
    request = json.loads(payload)
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {SCHEMA}.plain (id, type, state) VALUES (%s, %s, 'done')"
            " ON CONFLICT DO NOTHING",
            (request_id, kind),
        )
        if cursor.rowcount and kind != "bench.noop":
            cursor.execute(
                f"INSERT INTO {SCHEMA}.effects (id, amount) VALUES (%s, %s)",
                (request_id, request["amount"]),
            )
    status = json.dumps({"id": request_id, "type": kind, "state": "done"})
    statuses.set(f"{os.environ['PREFIX']}:status:{request_id}", status, ex=3600)


def main() -> None:
    count, commits, workers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    consumer = KafkaConsumer(
        os.environ["TOPIC"],
        bootstrap_servers=os.environ["KAFKA"],
        group_id=os.environ["GROUP"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=500,
    )
    room = threading.Semaphore(MOST_IN_HAND)
    with multiprocessing.get_context("spawn").Pool(workers, start_worker) as pool:
        results: list[Any] = []
        while len(results) < count:
            polled = consumer.poll(timeout_ms=500)
            if commits == "poll" and polled:
                consumer.commit()
            for partition, messages in polled.items():
                for message in messages:
                    if commits == "message":
                        commit_one(consumer, partition, message.offset)
                    headers = dict(message.headers)
                    room.acquire()
                    results.append(
                        pool.apply_async(
                            handle,
                            (
                                headers["ce_id"].decode(), headers["ce_type"].decode(),
                                message.value,
                            ),
                            callback=lambda _: room.release(),
                            error_callback=lambda _: room.release(),
                        )
                    )  # fmt: skip
        for result in results:
            result.get()
    consumer.close()


def commit_one(consumer: KafkaConsumer, partition: TopicPartition, offset: int) -> None:
    consumer.commit({partition: OffsetAndMetadata(offset + 1, "", -1)})


if __name__ == "__main__":
    main()
