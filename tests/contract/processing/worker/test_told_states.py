"""What a status in Redis says agrees with the row of its request, whatever was told before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback.contract.record import Record
from feedback.contract.states import State
from feedback.journal.claims import ClaimRequest, claim
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import Status, StatusFields, StatusWrite
from processing import App, Request
from stack import Stack
from tests.support.executor import Bench

TOMORROW = datetime.now(UTC) + timedelta(days=1)


class Told(Bench):
    """Whose statuses are written to a store as they are published."""

    store: RedisStatusStore
    order = 0

    def publish(self, writes: list[StatusWrite]) -> None:
        super().publish(writes)
        self.store.write(writes)

    def send(self, id: str, kind: str, payload: Any = None, **headers: str) -> Record:
        """A message, which its producer has said was accepted."""
        accepted = StatusFields(id, kind, State.ACCEPTED, 0, "ok", 0, datetime.now(UTC))
        self.store.write([StatusWrite.of(accepted)])
        return self.record(id, kind, payload or {}, None, **headers)

    def due(self, *ids: str) -> list[Record]:
        """The records of rows that are claimed here, as their time has come."""
        self.query(
            f"UPDATE {self.schema}.requests SET due_at = now(), not_before = now()"
            " WHERE id = ANY (%s)", [*ids],
        )  # fmt: skip
        self.order += 1
        want = ClaimRequest(self.order, 100)
        with psycopg.connect(self.url, autocommit=True) as connection:
            return [row.record for row in claim(connection, "local", want, schema=self.schema).rows]

    def agreed(self, id: str) -> tuple[str, str, int]:
        """State, code and run as its row has them, and its status says."""
        status = self.told(id)
        said = (str(status.state), status.code, status.run)
        query = f"SELECT state, code, run FROM {self.schema}.requests WHERE id = %s"
        assert self.query(query, id) == [said]
        return said

    def told(self, id: str) -> Status:
        [status] = self.store.read([id])
        assert status is not None
        return status


@pytest.fixture
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def bench(stack: Stack, schema: str, prefix: str, answers: dict[str, Any]) -> Iterator[Told]:
    app = App()

    def act(payload: Any, request: Request[Any]) -> str:
        answer = answers.get(request.id)
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer()
        return "ok"

    app.handler("pay")(act)
    app.handler("later", not_before=lambda p: p.get("at") and datetime.fromisoformat(p["at"]))(act)
    app.handler("merge", coalesce=lambda p: p["sku"], window=600)(act)
    app.handler("tally", coalesce=lambda p: p["sku"])(act)
    app.handler("calc", effect="none")(act)
    app.handler("again", retries=5)(act)
    made = Told(app, stack.database, schema, instance="local")
    made.store = RedisStatusStore(stack.redis, prefix)
    yield made
    made.executor.close()
    made.app.stop_worker()
    made.store.close()


@pytest.mark.parametrize("held", ["its message", "its handler", "its window", "its reference"])
def test_a_failed_request_that_is_sent_again_and_held_back_is_told_to_wait(
    bench: Told, answers: dict[str, Any], held: str
) -> None:
    kind, payload, headers = {
        "its message": ("pay", {}, {"ce_notbefore": TOMORROW.isoformat()}),
        "its handler": ("later", {"at": TOMORROW.isoformat()}, {}),
        "its window": ("merge", {"sku": "x"}, {}),
        "its reference": ("tally", {"sku": "x"}, {}),
    }[held]
    answers["x"] = ValueError("not now")
    bench.run(bench.send("x", kind, payload))
    if held != "its message":
        bench.run(*bench.due("x"))
    state, _, failed = bench.agreed("x")
    assert state == "failed"
    bench.run(bench.send("x", kind, payload, **headers))
    state, _, run = bench.agreed("x")
    assert (state, run) == ("waiting", failed + 1)
    answers.clear()
    bench.run(*bench.due("x"))
    assert bench.agreed("x")[0] == "done"
