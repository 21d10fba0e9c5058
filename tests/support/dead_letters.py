"""Messages that could not become requests, as a consumer writes them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from tests.support.journal import Journal

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
"""When they were produced."""


def writer_of_letters(journal: Journal) -> Callable[..., int]:
    """Writes a dead letter: its headers as a dict, its number comes back."""
    offsets = iter(range(1000))

    def put(sent: dict[str, str | None] | None = None, /, **columns: Any) -> int:
        pairs = [
            [name, None if value is None else base64.b64encode(value.encode()).decode()]
            for name, value in (sent or {}).items()
        ]
        row = {
            "topic": "requests", "partition": 0, "kafka_offset": next(offsets),
            "produced_at": AT, "reason": "malformed", "detail": "header ce_id is missing",
            "payload": b'{"n": 1}', "key": b"k-1", "headers": orjson.dumps(pairs).decode(),
        }  # fmt: skip
        journal.insert("dead_letters", **{**row, **columns})
        (last,) = journal.rows("SELECT max(id) AS id FROM {s}.dead_letters")
        return int(last["id"])

    return put
