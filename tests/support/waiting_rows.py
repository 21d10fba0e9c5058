"""Waiting rows written by SQL, and what becomes of them."""

from __future__ import annotations

import itertools
from typing import Any

import orjson

from feedback.journal.connections import open_connection
from feedback.journal.rows import headers_json

_FIELDS: dict[str, Any] = {
    "type": "effect", "state": "waiting", "code": "delayed", "effect": "transaction",
    "topic": "requests", "partition": 3, "attempt": 1, "run": 0, "crashes": 0, "token": None,
    "key": None, "payload": b"{}", "coalesce_key": None, "headers": [],
}  # fmt: skip


class WaitingRows:
    """The rows of one schema."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self.connection = open_connection(url, "oncepool tests")
        self._offsets = itertools.count()

    def add(self, *ids: str, due_in: float = -1.0, produced_in: float = -60.0, **more: Any) -> None:
        """Rows that are due in so many seconds, made at so many from now."""
        for name in ids:
            fields = {**_FIELDS, **more, "id": name, "kafka_offset": next(self._offsets)}
            fields["headers"] = headers_json(fields["headers"]).decode()
            columns = ", ".join(fields)
            values = ", ".join(f"%({column})s" for column in fields)
            self.connection.execute(
                f"INSERT INTO {self.schema}.requests"
                f" ({columns}, due_at, not_before, produced_at) VALUES ({values},"
                " now() + make_interval(secs => %(due_in)s),"
                " now() + make_interval(secs => %(due_in)s),"
                " now() + make_interval(secs => %(produced_in)s))".encode(),
                {**fields, "due_in": due_in, "produced_in": produced_in},
            )

    def add_many(
        self, n: int, *, types: int = 3, spread: float = 0.001, analyze: bool = True
    ) -> None:
        """Rows r1 ... rn of types t0 ..., half of which are due, `spread` seconds apart."""
        self.query(
            f"INSERT INTO {self.schema}.requests (id, type, state, code, effect, topic, partition,"
            f" kafka_offset, produced_at, due_at, not_before, payload, headers, run)"
            f" SELECT 'r'||g, 't'||(g % {types}), 'waiting', 'delayed', 'transaction', 'top', 0, g,"
            f" now(), now() + (g - {n} / 2) * interval '{spread} s', now(), '{{}}', '[]', 0"
            f" FROM generate_series(1, {n}) g"
        )
        if analyze:
            self.query(f"ANALYZE {self.schema}.requests")

    def add_types(self, n: int, *, due_in: float = 300.0) -> None:
        """A row of each of n types made.up.0001 ..., due in so many seconds."""
        self.query(
            f"INSERT INTO {self.schema}.requests (id, type, state, code, effect, topic, partition,"
            f" kafka_offset, produced_at, due_at, not_before, payload, headers, run)"
            f" SELECT 'm'||g, 'made.up.'||to_char(g, 'FM0000'), 'waiting', 'unknown_type',"
            f" 'transaction', 'top', 0, g, now(), now() + interval '{due_in} s',"
            f" now() + interval '{due_in} s', '{{}}', '[]', 0 FROM generate_series(1, {n}) g"
        )
        self.query(f"ANALYZE {self.schema}.requests")

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def columns(self, name: str, *columns: str) -> tuple[Any, ...]:
        """Columns of a row; `due_in` is in seconds from now."""
        due = "extract(epoch FROM due_at - now())::float8"
        wanted = ", ".join(due if column == "due_in" else column for column in columns)
        [row] = self.query(f"SELECT {wanted} FROM {self.schema}.requests WHERE id = %s", name)
        return row

    def expire(self, *ids: str) -> None:
        """Their leases have run out a second ago."""
        self.query(
            f"UPDATE {self.schema}.requests SET due_at = now() - interval '1 s',"
            " lease_until = now() - interval '1 s' WHERE id = ANY (%s)",
            list(ids),
        )

    def states(self) -> dict[str, str]:
        return dict(self.query(f"SELECT id, state FROM {self.schema}.requests"))

    def explain(self, statement: str, values: dict[str, Any]) -> str:
        """The plan of a statement, as text; nothing is kept of what it does."""
        with self.connection.transaction(force_rollback=True):
            plan = self.connection.execute(f"EXPLAIN (FORMAT json) {statement}".encode(), values)
            [row] = plan.fetchall()
            return orjson.dumps(row[0]).decode()

    def close(self) -> None:
        self.connection.close()
