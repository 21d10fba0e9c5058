"""What holds a request back is decided by who reads it whole, however often that fails first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel, field_validator

from feedback.contract.record import read_again
from feedback.journal.rows import HOLD_OPEN
from feedback.operations.request_actions import By, retry
from processing import App, Request
from processing.ipc.frames import Suspect
from stack import Stack
from tests.support.moves import forbidden_moves, watch_moves
from tests.support.parked import park_records
from tests.support.queue import FAR, INSTANCE, Queue

DUE = datetime(2035, 1, 1, tzinfo=UTC)
HELD = {
    "coalesce": ("waiting", "coalescing"),
    "not_before": ("waiting", "delayed"),
    "validator": ("waiting", "coalescing"),
    "fingerprint": ("waiting", "coalescing"),
}
"""What fails at first, which is its type too, and how a request of it is held back."""
TIMEOUT = Suspect("timeout", (), ("x",), 1)

faults: list[str] = []
"""What is to fail, once each."""


def meet(what: str) -> None:
    if what in faults:
        faults.remove(what)
        raise ConnectionError(f"{what}: a service is away")


class Order(BaseModel):
    sku: str

    @field_validator("sku")
    @classmethod
    def _known(cls, value: str) -> str:
        meet("validator")
        return value


def sku_of(order: Order) -> str:
    meet("coalesce")
    return order.sku


def due_of(order: Order) -> datetime:
    meet("not_before")
    return DUE


def mark_of(order: Order) -> str:
    meet("fingerprint")
    return order.sku


@pytest.fixture(params=[1, 0], ids=["retried", "failed"])
def retries(request: pytest.FixtureRequest) -> int:
    """Of all types. Without any, an operator retries what failed."""
    return int(request.param)


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def held(stack: Stack, schema: str, retries: int, seen: list[Any]) -> Iterator[Queue]:
    faults.clear()
    app = App()

    def handle(order: Order, request: Request[Any]) -> None:
        seen.append((request.id, sorted(request.headers)))

    app.handler("coalesce", coalesce=sku_of, window=20, retries=retries)(handle)
    app.handler("not_before", not_before=due_of, retries=retries)(handle)
    app.handler("validator", coalesce=sku_of, window=20, retries=retries)(handle)
    app.handler("fingerprint", coalesce=sku_of, fingerprint=mark_of, window=20, retries=retries)(
        handle
    )
    app.handler("unique", coalesce=sku_of, redelivery=False)(handle)
    app.handler("plain", retries=retries)(handle)
    watch_moves(stack.database, schema)
    made = Queue(app, stack.database, schema, instance=INSTANCE)
    yield made
    made.executor.close()
    made.app.stop_worker()
    assert forbidden_moves(stack.database, schema) == []


def come_again(queue: Queue, name: str) -> None:
    """Its next attempt: its own, or an operator's."""
    if queue.row(name)["state"] == "failed":
        with psycopg.connect(queue.url, autocommit=True) as connection:
            assert not retry(connection, [name], By("ann"), schema=queue.schema).refused
    queue.again(name)


def parked(queue: Queue, name: str, kind: str) -> None:
    record = queue.record(name, kind, {"sku": "s"})
    park_records(queue.url, queue.schema, [record], comparable={kind: kind != "fingerprint"})


def has_failed(queue: Queue, name: str, code: str = "handler_error") -> bool:
    row = queue.row(name)
    return row["state"] in ("failed", "waiting") and row["code"] == code


def says_open(queue: Queue, name: str) -> bool:
    return HOLD_OPEN in dict(queue.row(name)["headers"])


@pytest.mark.parametrize("kind", HELD)
def test_it_is_held_back_after_a_failed_reading(held: Queue, seen: list[Any], kind: str) -> None:
    faults.append(kind)
    held.run(held.record("a", kind, {"sku": "s"}, mine="x"))
    assert has_failed(held, "a")
    come_again(held, "a")
    assert (held.rows()["a"], seen) == (HELD[kind], [])
    assert not says_open(held, "a")
    if kind == "not_before":
        assert held.row("a")["due_at"] == DUE
    else:
        held.run(held.record("b", kind, {"sku": "s"}))
        assert held.row("a")["superseded_by"] == "b"
        held.run(held.record("c", kind, {"sku": "t"}))
    name = "a" if kind == "not_before" else "c"
    held.again(name)
    assert held.rows()[name] == ("done", "ok"), "what was decided is not decided again"
    assert [one for one, _ in seen] == [name]


@pytest.mark.parametrize("kind", HELD)
def test_a_parked_row_is_held_back_after_failed_readings(
    held: Queue, seen: list[Any], kind: str
) -> None:
    parked(held, "a", kind)
    for _ in range(2):  # the queue's own claim, and its retry
        faults.append(kind)
        come_again(held, "a")
        assert has_failed(held, "a") or held.row("a")["state"] == "dead"
    if held.row("a")["state"] == "dead":
        with psycopg.connect(held.url, autocommit=True) as connection:
            retry(connection, ["a"], By("ann"), schema=held.schema)
    come_again(held, "a")
    assert (held.rows()["a"], seen) == (HELD[kind], [])


@pytest.mark.parametrize("kind", HELD)
def test_a_timeout_leaves_open_what_holds_it_back(held: Queue, seen: list[Any], kind: str) -> None:
    """Nobody knows whether its worker was killed while it was read."""
    held.run(held.record("a", kind, {"sku": "s"}), suspect=TIMEOUT)
    assert has_failed(held, "a", "timeout")
    come_again(held, "a")
    assert (held.rows()["a"], seen) == (HELD[kind], [])


@pytest.mark.parametrize("kind", ["plain", "validator"])
@pytest.mark.parametrize("suspect", [None, TIMEOUT], ids=["reading", "timeout"])
def test_the_time_that_its_producer_gave_holds(
    held: Queue, seen: list[Any], kind: str, suspect: Suspect | None
) -> None:
    faults.append("validator")
    held.run(held.record("a", kind, {"sku": "s"}, ce_notbefore=FAR), suspect=suspect)
    faults.clear()
    assert has_failed(held, "a", "timeout" if suspect else "handler_error")
    if (row := held.row("a"))["state"] == "waiting":
        assert row["due_at"] == row["not_before"] == DUE
        assert held.told("a")["retry_at"] == FAR
    else:
        come_again(held, "a")  # an operator's retry is due at once
        assert held.rows()["a"] == ("waiting", "delayed")
        assert held.row("a")["due_at"] == DUE
    assert seen == []


def test_a_time_that_is_over_is_one_of_its_own(held: Queue, seen: list[Any]) -> None:
    """It does not coalesce, now as at its first reading."""
    faults.append("validator")
    past = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    held.run(held.record("a", "validator", {"sku": "s"}, ce_notbefore=past, mine="x"))
    come_again(held, "a")
    assert held.rows()["a"] == ("done", "ok")
    assert seen == [("a", ["mine"])]


@pytest.mark.parametrize("retries", [0])
def test_a_failed_one_that_is_sent_again_and_parked_is_held_back(
    held: Queue, seen: list[Any]
) -> None:
    faults.append("coalesce")
    held.run(held.record("a", "coalesce", {"sku": "s"}))
    assert held.rows()["a"] == ("failed", "handler_error")
    parked(held, "a", "coalesce")
    assert held.rows()["a"] == ("waiting", "parked")
    held.again("a")
    assert (held.rows()["a"], seen) == (("waiting", "coalescing"), [])


@pytest.mark.parametrize("retries", [0])
@pytest.mark.parametrize("died", ["worker_died", "instance_died"])
def test_a_hold_that_another_end_comes_before_is_open(
    held: Queue, seen: list[Any], died: str
) -> None:
    """Nobody knows whether it was entered before, and it must not be twice."""
    record = held.record("a", "unique", {"sku": "s"})
    if died == "worker_died":
        held.run(record, suspect=Suspect(None, (), ("x",), 1))
    else:
        held.run(read_again(record))
    assert held.rows()["a"] == ("failed", died)
    come_again(held, "a")
    assert (held.rows()["a"], seen) == (("waiting", "coalescing"), [])


@pytest.mark.parametrize("retries", [0])
def test_what_must_not_be_entered_again_takes_nobody_s_place(held: Queue, seen: list[Any]) -> None:
    """Of its reference the older one runs, as the newer one never would."""
    older, newer = (held.record(name, "unique", {"sku": "s"}) for name in ("a", "b"))
    held.run(older)
    held.run(read_again(newer))
    assert held.rows() == {"a": ("waiting", "coalescing"), "b": ("failed", "instance_died")}
    held.again("a")
    assert (held.rows()["a"], seen[0][0]) == (("done", "ok"), "a")


def test_a_resend_that_cannot_be_read_leaves_its_own_hold_open(
    held: Queue, seen: list[Any]
) -> None:
    """Also where the row keeps its payload, as the two could not be compared."""
    held.query(
        f"INSERT INTO {held.schema}.requests (id, type, state, code, run, used, effect, topic,"
        " partition, kafka_offset, produced_at, payload, headers, fingerprint, own_fingerprint,"
        " finished_at) VALUES ('a', 'fingerprint', 'failed', 'handler_error', 1, 1, 'transaction',"
        " 't', 0, 1, now(), %s, '[]', '\\x01', true, now())",
        b'{"sku":"s"}',
    )
    faults.append("fingerprint")
    held.run(held.record("a", "fingerprint", {"sku": "s"}, ce_notbefore=FAR))
    come_again(held, "a")
    assert (held.rows()["a"], seen) == (("waiting", "delayed"), [])
    assert held.row("a")["due_at"] == DUE


def test_a_decided_end_is_not_replaced_by_a_hold(held: Queue, seen: list[Any]) -> None:
    """Its second crash makes it dead, and an operator's retry has it held back."""
    parked(held, "a", "coalesce")
    held.run(*held.claimed("a"), suspect=Suspect(None, (), ("x",), 2))
    assert held.rows()["a"] == ("dead", "worker_died")
    with psycopg.connect(held.url, autocommit=True) as connection:
        retry(connection, ["a"], By("ann"), schema=held.schema)
    held.again("a")
    assert (held.rows()["a"], seen) == (("waiting", "coalescing"), [])
