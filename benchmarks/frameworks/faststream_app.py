"""FastStream: one consumer of a group, by batches or with several workers.

    python -m benchmarks.frameworks.faststream_app HANDLER batch|tuned|workers

As its documentation has it: `batch=True`, acknowledged after the work; the same `tuned`, with
msgspec instead of Pydantic and on uvloop's event loop; or `max_workers`, where messages are
acknowledged first, which is all that goes with it. Handlers are coroutines, with a connection of a
pool. Ends at SIGTERM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import anyio
import orjson
import redis.asyncio
import uvloop  # type: ignore[import-not-found, unused-ignore]
from fast_depends.msgspec import MsgSpecSerializer  # type: ignore[import-not-found, unused-ignore]
from fast_depends.pydantic import PydanticSerializer  # type: ignore[import-not-found, unused-ignore]
from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker
from faststream.confluent.annotations import KafkaMessage
from psycopg_pool import AsyncConnectionPool

from benchmarks.afternoon_work import (
    CLAIM,
    COPY,
    HEARTBEAT_MS,
    INSERT,
    TTL,
    id_in,
    key_of,
    status_of,
)

BATCH = 500
WORKERS = 10
"""Messages at once in a process."""


class AsyncWork:
    """What AfternoonWork does, by coroutines."""

    def __init__(self, handler: str, connections: int) -> None:
        self._handler = handler
        self._pool = AsyncConnectionPool(
            os.environ["DATABASE"], min_size=connections, max_size=connections, open=False
        )
        self._redis = redis.asyncio.Redis.from_url(os.environ["REDIS"])

    async def open(self) -> None:
        """Opens the pool, in the loop that uses it."""
        await self._pool.open(wait=True)

    async def run(self, requests: Mapping[str, Any]) -> None:
        """All of `requests` (id -> payload) in one transaction; returns when statuses are set."""
        async with self._pool.connection() as connection, connection.cursor() as cursor:
            await cursor.execute(CLAIM, (self._handler, list(requests)))
            fresh = [name for (name,) in await cursor.fetchall()]
            if self._handler == "bench.insert":
                for name in fresh:
                    await cursor.execute(INSERT, (name, requests[name]["amount"]))
            elif self._handler == "bench.batch":
                async with cursor.copy(COPY) as copy:
                    copy.set_types(("text", "int4"))
                    for name in fresh:
                        await copy.write_row((name, requests[name]["amount"]))
        async with self._redis.pipeline(transaction=False) as statuses:
            for name in fresh:
                statuses.set(key_of(name), status_of(name, self._handler), ex=TTL)
            await statuses.execute()


def main() -> None:
    handler, way = sys.argv[1:]
    tuned = way == "tuned"
    serializer = MsgSpecSerializer() if tuned else PydanticSerializer()
    broker = KafkaBroker(os.environ["KAFKA"], logger=None, serializer=serializer)
    work = AsyncWork(handler, WORKERS if way == "workers" else 1)
    topic = {
        "group_id": os.environ["GROUP"],
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": ["cooperative-sticky"],
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "isolation_level": "read_committed",
    }
    if way != "workers":

        @broker.subscriber(
            os.environ["TOPIC"], batch=True, max_records=BATCH, polling_interval=0.05,
            ack_policy=AckPolicy.ACK, **topic,
        )  # fmt: skip
        async def take_all(_bodies: list[Any], message: KafkaMessage) -> None:
            raw = message.raw_message
            await work.run({id_in(m.headers()): orjson.loads(m.value()) for m in raw})

    else:

        @broker.subscriber(
            os.environ["TOPIC"], max_workers=WORKERS, ack_policy=AckPolicy.ACK_FIRST, **topic
        )
        async def take(body: dict[str, Any], message: KafkaMessage) -> None:
            await work.run({id_in(message.raw_message.headers()): body})

    app = FastStream(broker, logger=None)
    app.on_startup(work.open)
    # Its own command takes uvloop by itself where it is installed: both are said here.
    loop = {"loop_factory": uvloop.new_event_loop} if tuned else {"use_uvloop": False}
    anyio.run(app.run, backend_options=loop)


if __name__ == "__main__":
    main()
