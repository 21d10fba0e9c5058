"""Rows of an outbox that were sent, and who reads their answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg

from feedback import outbox
from feedback.contract.states import State
from feedback.outbox.relay.answers import AnswerPolicy, Ended
from feedback.outbox.relay.batch import BatchMarks
from feedback.outbox.relay.database import RelayDatabase
from feedback.outbox.relay.loop import AnswerLoop
from feedback.outbox.relay.settling import Settling
from feedback.postgres import open_connection
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusFields, StatusWrite
from feedback.status.store import StatusStore
from tests.support.outbox import Outbox

POLICY = AnswerPolicy(100.0, {"slow": 1000.0}, max_sends=3)


@contextmanager
def reading(settling: Settling, store: StatusStore, url: str) -> Iterator[None]:
    """The loop of a relay that reads answers, with the database at `url`."""
    reader = AnswerLoop(url, "default", store, settling)
    reader.start()
    try:
        yield
    finally:
        reader.stop()
        assert reader.join(60)


class Asked:
    """Rows that were sent, and who reads their answers."""

    def __init__(
        self, outbox_: Outbox, *ids: str, type_: str = "t", store: StatusStore | None = None
    ) -> None:
        self.outbox = outbox_
        self.connection = open_connection(outbox_.url, "oncepool relay")
        self.store = store or MemoryStatusStore()
        self.told: list[Ended] = []
        self.settling = Settling(
            outbox_.schema, "default", self.store, POLICY, inbox=True, settled=self.told.append
        )
        self.connection.execute(f"LISTEN {outbox_.schema}_settled".encode())
        self.add(*ids, type_=type_)
        self.send()

    def add(self, *ids: str, type_: str = "t") -> None:
        with psycopg.connect(self.outbox.url) as connection:
            outbox.add_many(connection, [(type_, {}, {"request_id": id_}) for id_ in ids])

    def send(self, *ids: str) -> None:
        """Of these ids, or all."""
        unsent = [row for row in self.outbox.rows() if row["state"] == "unsent"]
        rows = [row["seq"] for row in unsent if not ids or row["id"] in ids]
        database = RelayDatabase(self.connection, self.outbox.schema, "default", POLICY)
        database.mark(BatchMarks(rows, []))

    def status(self, id_: str, state: State, code: str = "ok", run: int = 1, **fields: Any) -> None:
        [row] = [row for row in self.outbox.rows() if row["id"] == id_]
        fields = {"fingerprint": row["fingerprint"], "at": datetime.now(UTC), **fields}
        about = StatusFields(id_, row["type"], state, run, code=code, attempt=1, **fields)
        value = about.encode()
        self.store.write([StatusWrite(id_, value, 60)])

    def silence(self) -> None:
        self.outbox.run("UPDATE :schema.requests SET next_at = now() WHERE state = 'sent'")

    def settle(self) -> None:
        assert not self.settling.page(self.connection)

    def rows(self) -> dict[str, Any]:
        return {row["id"]: row for row in self.outbox.rows("SELECT * FROM :schema.all_requests")}

    def notified(self) -> list[str]:
        return sorted(n.payload for n in self.connection.notifies(timeout=0.2))
