"""DBOS: one process of an application with a Kafka consumer, a workflow for each message.

    python -m benchmarks.frameworks.dbos_app HANDLER [tuned]

DBOS's own row for the workflow keeps a second copy from running. The handler is a step that sets
the status; before it, where there is an effect, a transaction of its data source with the INSERT.
Its queue is looked at every 50 ms instead of every second, as its documentation allows; `tuned`
every 10 ms, with batches of 500 instead of 250. Ends at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import orjson
import redis
import sqlalchemy
from dbos import DBOS, DBOSConfig, KafkaMessage, SQLAlchemyDatasource

from benchmarks.afternoon_work import HEARTBEAT_MS, SCHEMA, TTL, id_in, key_of, status_of

INSERT = f"INSERT INTO {SCHEMA}.effects (id, amount) VALUES (:id, :amount)"
VIEW = f"""CREATE OR REPLACE VIEW {SCHEMA}.by_dbos AS SELECT workflow_uuid AS id,
to_timestamp(updated_at / 1000.0) AS finished_at FROM {SCHEMA}.workflow_status
WHERE status = 'SUCCESS'"""


def config_of(url: str, *, tuned: bool) -> DBOSConfig:
    """Of one process."""
    return {
        "name": "bench",
        "system_database_url": url,
        "dbos_system_schema": SCHEMA,
        "executor_id": str(os.getpid()),
        "application_version": "1",
        "kafka_queue_polling_interval_sec": 0.01 if tuned else 0.05,
        "log_level": "WARNING",
    }


def main() -> None:
    handler, tuned = sys.argv[1], sys.argv[2:] == ["tuned"]
    url = os.environ["DATABASE"].replace("postgresql://", "postgresql+psycopg://", 1)
    DBOS(config=config_of(url, tuned=tuned))
    store = SQLAlchemyDatasource.create(url, schema=SCHEMA)
    # Its workflows run in more threads than the client's pool has connections: they wait for one.
    connections = redis.BlockingConnectionPool.from_url(os.environ["REDIS"], timeout=None)
    statuses = redis.Redis(connection_pool=connections)

    @DBOS.step()
    def tell(request_id: str) -> None:
        statuses.set(key_of(request_id), status_of(request_id, handler), ex=TTL)

    @store.transaction
    def insert(request_id: str, amount: int) -> None:
        values = {"id": request_id, "amount": amount}
        store.sql_session().execute(sqlalchemy.text(INSERT), values)

    @DBOS.kafka_consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["GROUP"],
            "heartbeat.interval.ms": HEARTBEAT_MS,
        },
        [os.environ["TOPIC"]],
        batch_size=500 if tuned else 250,
    )
    @DBOS.workflow()
    def take(message: KafkaMessage) -> None:
        request_id = id_in(message.headers)
        if handler == "bench.insert":
            insert(request_id, orjson.loads(message.value or b"null")["amount"])
        tell(request_id)

    DBOS.launch()
    with store.engine.begin() as connection:
        connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(8)"))
        connection.execute(sqlalchemy.text(VIEW))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    DBOS.destroy()


if __name__ == "__main__":
    main()
