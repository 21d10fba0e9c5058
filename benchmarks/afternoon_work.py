"""What every consumer but Oncepool does with its messages: a row, the effect, a status.

By batches, or by batches of one. The row of a new id keeps a second copy from running; it is in
one transaction with the handler's INSERTs. Statuses follow by a pipeline of SETs. Reads DATABASE,
REDIS, SCHEMA and PREFIX from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg
import redis

SCHEMA = os.environ.get("SCHEMA", "afternoon")
CLAIM = f"""INSERT INTO {SCHEMA}.plain (id, type, state)
SELECT id, %s, 'done' FROM unnest(%s::text[]) AS id ON CONFLICT DO NOTHING RETURNING id"""
INSERT = f"INSERT INTO {SCHEMA}.effects (id, amount) VALUES (%s, %s)"
COPY = f"COPY {SCHEMA}.effects (id, amount) FROM STDIN (FORMAT binary)"
STATUS = f"{os.environ.get('PREFIX', 'afternoon')}:status:"
TTL = 3600
HEARTBEAT_MS = 300
"""Of members of classic groups: they hear of others sooner than with 3 s. Rates do not feel it."""


class AfternoonWork:
    """One connection to each store; `run` is called with what was read."""

    def __init__(self, handler: str, *, pipeline: bool = False) -> None:
        self._handler = handler
        self._pipeline = pipeline
        self._connection = psycopg.connect(os.environ["DATABASE"], autocommit=True)
        self._redis = redis.Redis.from_url(os.environ["REDIS"])

    def run(self, requests: Mapping[str, Any]) -> None:
        """All of `requests` (id -> payload) in one transaction; returns when statuses are set."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(CLAIM, (self._handler, list(requests)))
            fresh = [name for (name,) in cursor.fetchall()]
            self._effects(cursor, fresh, requests)
        with self._redis.pipeline(transaction=False) as statuses:
            for name in fresh:
                statuses.set(key_of(name), status_of(name, self._handler), ex=TTL)
            statuses.execute()

    def _effects(
        self, cursor: psycopg.Cursor[Any], ids: list[str], requests: Mapping[str, Any]
    ) -> None:
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

    def _insert(
        self, cursor: psycopg.Cursor[Any], ids: list[str], requests: Mapping[str, Any]
    ) -> None:
        for name in ids:
            cursor.execute(INSERT, (name, requests[name]["amount"]))


def key_of(request_id: str) -> str:
    """Where its status is in Redis."""
    return STATUS + request_id


def status_of(request_id: str, handler: str) -> bytes:
    """Its status, done now."""
    now = datetime.now(UTC).isoformat()
    return orjson.dumps({"id": request_id, "type": handler, "state": "done", "at": now})


def id_in(headers: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> str:
    """The request's id, of a message's headers."""
    found: dict[str, Any] = dict(headers or ())
    return str(found["ce_id"], "utf-8")
