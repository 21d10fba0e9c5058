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
from processing import App, Request, Retry
from processing.ipc.frames import Suspect
from stack import Stack
from tests.support.executor import Bench
from tests.support.parked import park_records

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
    app.handler("calc.later", effect="none", not_before=lambda _: TOMORROW)(act)
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


FAILS = ValueError("not now")


@pytest.mark.parametrize("waits", ["for another try", "parked", "for its time", "as its type says"])
def test_pure_computation_that_failed_and_waits_is_told_to_wait(
    bench: Told, answers: dict[str, Any], waits: str
) -> None:
    """Its failures have no row, and the row that comes counts its runs from the start."""
    answers["x"] = FAILS
    kind = "calc.later" if waits == "as its type says" else "calc"
    for _ in range(3):
        bench.run(bench.send("x", kind))
        bench.run(*bench.due("x"))
    assert (bench.told("x").state, bench.rows()) == ("failed", {})
    if waits == "for another try":
        answers["x"] = Retry(after=3600)
        bench.run(bench.send("x", kind))
    elif waits == "parked":
        bench.store.write(park_records(bench.url, bench.schema, [bench.send("x", kind)]))
    else:
        bench.run(bench.send("x", kind, ce_notbefore=TOMORROW.isoformat()))
    assert bench.agreed("x")[0] == "waiting"
    # Its row goes with its failure, which its producer tells from the one before it waited.
    answers["x"] = ValueError("another cause")
    bench.run(*bench.due("x"))
    status = bench.told("x")
    assert (status.state, bench.rows()) == ("failed", {})
    assert "another cause" in str(status.error)
    assert not status.journaled


def test_pure_computation_that_failed_and_killed_its_worker_is_told_to_be_dead(
    bench: Told, answers: dict[str, Any]
) -> None:
    answers["x"] = FAILS
    for _ in range(3):
        bench.run(bench.send("x", "calc"))
    bench.run(bench.send("x", "calc"), suspect=Suspect("worker_died", (), ("x",), 2))
    assert bench.agreed("x")[:2] == ("dead", "worker_died")


@pytest.mark.parametrize("by", ["a worker", "maintenance"])
def test_a_resend_that_is_answered_while_its_row_runs_hides_no_later_wait(
    bench: Told, answers: dict[str, Any], by: str
) -> None:
    answers["x"] = Retry(after=60)
    bench.run(bench.send("x", "again"))
    claimed = bench.due("x")
    resend = bench.send("x", "again")
    if by == "a worker":
        bench.run(resend)
    else:
        bench.store.write(park_records(bench.url, bench.schema, [resend]))
    answers["x"] = Retry(after=86_400)
    bench.run(*claimed)
    assert bench.agreed("x") == ("waiting", "retry", 2)
    [(due,)] = bench.query(f"SELECT due_at FROM {bench.schema}.requests")
    assert bench.told("x").retry_at == due
