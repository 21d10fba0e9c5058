"""The bare limit: the same SQL and the same Redis commands, and nothing else.

    python -m benchmarks.bare_limit HANDLER COUNT [WARM]

With WARM it does so many at first and waits for a signal before the others, and for another after
them: see benchmarks/signalled.py. Reads DATABASE, REDIS, SCHEMA and PREFIX from the environment.
No Kafka, no payload is parsed, no fingerprint made, nothing is handed between processes: ids are
made here and their rows are written with psycopg as its manual shows, in chunks as large as
Oncepool's. Statuses leave through a thread of their own, as there.
"""

from __future__ import annotations

import os
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

import psycopg

from benchmarks import signalled
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.sender import StatusSender
from feedback.status.status import StatusFields, StatusWrite

CHUNK = 500
SEGMENT = 25
SCHEMA = os.environ.get("SCHEMA", "oncepool")
FIND = f"""SELECT id, type, state, code, attempt, run, crashes, fingerprint, result::text, error,
 reason, superseded_by, token, topic, partition, kafka_offset FROM {SCHEMA}.requests
 WHERE id = ANY(%s)"""
JOURNAL = f"""COPY {SCHEMA}.requests (id, type, state, code, attempt, run, crashes, fingerprint,
 key, topic, partition, kafka_offset, produced_at, effect, finished_at)
 FROM STDIN (FORMAT binary)"""
TYPES = ("text", "text", "text", "text", "int4", "int4", "int4", "bytea", "bytea", "text", "int4",
         "int8", "timestamptz", "text", "timestamptz")  # fmt: skip
INSERT = f"INSERT INTO {SCHEMA}.effects (id, amount) VALUES (%s, %s)"
COPY = f"COPY {SCHEMA}.effects (id, amount) FROM STDIN (FORMAT binary)"
FINGERPRINT = bytes(16)


def main() -> None:
    handler, count = sys.argv[1], int(sys.argv[2])
    warm = int(sys.argv[3]) if sys.argv[3:] else None
    if warm is not None:
        signalled.expect()
    sender = StatusSender(RedisStatusStore(os.environ["REDIS"], prefix=os.environ["PREFIX"]))
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as connection:
        cursor = connection.cursor()
        if warm is not None:
            run(cursor, sender, handler, warm)
            signalled.wait_to_begin()
        run(cursor, sender, handler, count)
        if warm is not None:
            signalled.wait_to_end()
    sender.close(30)


def run(cursor: psycopg.Cursor[Any], sender: StatusSender, handler: str, count: int) -> None:
    """So many requests, by chunks."""
    for start in range(0, count, CHUNK):
        ids = sorted(str(uuid.uuid4()) for _ in range(min(CHUNK, count - start)))
        now = datetime.now(UTC)
        run_chunk(cursor, handler, ids, now)
        sender.put([status(i, handler, now) for i in ids])


def run_chunk(
    cursor: psycopg.Cursor[Any], handler: str, ids: list[str], now: datetime
) -> None:  # fmt: skip
    cursor.execute("BEGIN")
    cursor.execute(FIND, (ids,))
    cursor.fetchall()
    if handler == "bench.insert":
        for start in range(0, len(ids), SEGMENT):
            cursor.execute("SAVEPOINT segment")
            for request_id in ids[start : start + SEGMENT]:
                cursor.execute(INSERT, (request_id, 5))
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("RELEASE SAVEPOINT segment")
    elif handler == "bench.batch":
        with cursor.copy(COPY) as copy:
            copy.set_types(("text", "int4"))
            for request_id in ids:
                copy.write_row((request_id, 5))
    with cursor.copy(JOURNAL) as copy:
        copy.set_types(TYPES)
        for offset, request_id in enumerate(ids):
            copy.write_row(
                (
                    request_id, handler, "done", "ok", 1, 1, 0, FINGERPRINT, request_id.encode(),
                    "bench", 0, offset, now, "transaction", now,
                )
            )  # fmt: skip
    cursor.execute("COMMIT")


def status(request_id: str, handler: str, now: datetime) -> StatusWrite:
    value = StatusFields(
        request_id, handler, State.DONE, 1, code="ok", attempt=1, at=now, fingerprint=FINGERPRINT
    ).encode()
    return StatusWrite(request_id, value, 3600)


if __name__ == "__main__":
    main()
