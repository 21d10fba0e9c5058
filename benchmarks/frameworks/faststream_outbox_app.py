"""faststream-outbox: rows of its own table on their way to Kafka; prints rows a second.

    python -m benchmarks.frameworks.faststream_outbox_app ROWS WORKERS

As its documentation has it: a subscriber of the outbox that is a publisher of Kafka, with asyncpg;
larger batches than its defaults, which are slower.
Its table is made and filled before it is timed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import Any

from faststream.confluent import KafkaBroker
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

CLONE = """
INSERT INTO faststream_outbox (queue, payload, headers)
SELECT queue, payload, headers FROM faststream_outbox CROSS JOIN generate_series(2, :rows)
"""
BATCH = 500


async def run(rows: int, workers: int) -> float:
    """Rows a second."""
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="faststream_outbox")
    url = os.environ["DATABASE"].replace("postgresql:", "postgresql+asyncpg:").partition("?")[0]
    engine = create_async_engine(url, pool_size=20)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.drop_all)
        await connection.run_sync(metadata.create_all)
    source = OutboxBroker(engine, outbox_table=table)
    target = KafkaBroker(os.environ["KAFKA"], acks="all", enable_idempotence=True)
    done = 0
    ended = asyncio.Event()

    async def relay(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal done
        done += 1
        if done >= rows:
            ended.set()
        return body

    subscriber = source.subscriber(
        "bench", max_workers=workers, fetch_batch_size=BATCH, terminal_flush_batch_size=100
    )
    target.publisher(os.environ["TOPIC"])(subscriber(relay))
    async with async_sessionmaker(engine)() as session, session.begin():
        await source.publish({"text": "x" * 180}, queue="bench", session=session)
    async with engine.begin() as connection:
        await connection.execute(text(CLONE), {"rows": rows})
    await target.connect()
    began = time.monotonic()
    await source.start()
    await ended.wait()
    rate = rows / (time.monotonic() - began)
    await source.stop()
    await target.stop()
    await engine.dispose()
    return rate


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(asyncio.run(run(int(sys.argv[1]), int(sys.argv[2]))))
