"""The bare limit: the statements, rows and status commands of Oncepool, and nothing else.

    python -m benchmarks.bare_limit HANDLER COUNT [WARM]

With WARM it does so many at first and waits for a signal before the others, and for another after
them: see benchmarks/signalled.py. Reads DATABASE, REDIS, SCHEMA and PREFIX from the environment.
No Kafka, no payload is parsed, no fingerprint made, nothing is handed between processes: ids are
made here, in chunks as large as Oncepool's. BEGIN, the look-up, savepoints, COPY, COMMIT and
statuses are sent by Oncepool's own code for them, so that they stay the same: rows as it packs
those that are plainly done, statuses final, as these are, so that a hundred are set at once.
Handlers' INSERTs go as psycopg sends them. Statuses leave through a thread of their own.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from typing import Any

import psycopg
from psycopg import pq

from benchmarks import signalled
from feedback.contract.times import microseconds
from feedback.journal.done_rows import done_row
from feedback.journal.writer import JournalWriter
from feedback.status.redis_store import RedisStatusStore
from feedback.status.sender import StatusSender
from feedback.status.status import StatusWrite
from processing.worker.statements import BEGIN, RELEASE, SAVEPOINT

CHUNK = 500
SEGMENT = 25
SCHEMA = os.environ.get("SCHEMA", "oncepool")
INSERT = f"INSERT INTO {SCHEMA}.effects (id, amount) VALUES (%s, %s)"
COPY = f"COPY {SCHEMA}.effects (id, amount) FROM STDIN (FORMAT binary)"
FINGERPRINT = bytes(16)
TTL = 3600


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
    rows = JournalWriter(SCHEMA)
    for start in range(0, count, CHUNK):
        ids = sorted(str(uuid.uuid4()) for _ in range(min(CHUNK, count - start)))
        now = microseconds(time.time())
        run_chunk(cursor, rows, handler, ids, now)
        sender.put([status(request_id, handler, now) for request_id in ids])


def run_chunk(
    cursor: psycopg.Cursor[Any], rows: JournalWriter, handler: str, ids: list[str], now: int
) -> None:
    """One transaction."""
    send(cursor, BEGIN)
    rows.find(cursor, ids)
    if handler == "bench.insert":
        send(cursor, SAVEPOINT + b"; SELECT pg_current_xact_id()")
        for start in range(0, len(ids), SEGMENT):
            for request_id in ids[start : start + SEGMENT]:
                cursor.execute(INSERT, (request_id, 5))
            more = start + SEGMENT < len(ids)
            send(cursor, b"; ".join((*RELEASE, SAVEPOINT) if more else RELEASE))
    elif handler == "bench.batch":
        with cursor.copy(COPY) as copy:
            copy.set_types(("text", "int4"))
            for request_id in ids:
                copy.write_row((request_id, 5))
    rows.insert_done(cursor, [row(request_id, handler, n, now) for n, request_id in enumerate(ids)])
    send(cursor, b"COMMIT")


def send(cursor: psycopg.Cursor[Any], statements: bytes) -> None:
    """As Oncepool's session does, past psycopg's own ways. Raises OperationalError."""
    result = cursor.connection.pgconn.exec_(statements)
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise psycopg.OperationalError(result.get_error_message())


def row(request_id: str, handler: str, offset: int, now: int) -> bytes:
    """Of a request that is done."""
    return done_row(
        request_id, handler, fingerprint=FINGERPRINT, own_fingerprint=False, result=None,
        key=request_id.encode(), topic="bench", partition=0, offset=offset, produced_at=now,
        finished_at=now,
    )  # fmt: skip


def status(request_id: str, handler: str, now: int) -> StatusWrite:
    """The same."""
    return StatusWrite.of_done(
        request_id, handler, at=now, fingerprint=FINGERPRINT, result=None, ttl=TTL, reply_to=None,
        final=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
