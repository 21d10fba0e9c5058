"""The shop's other side over a real database: orders, their requests, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from examples.shop.storefront import (
    Basket,
    Connection,
    create_storefront,
    place_order,
    settle_one,
    take_answers,
)
from feedback import State, Status, WaitTimeout
from stack import Stack
from tests.support.own_database import OwnDatabase

BASKET = Basket("customer 1", "tok-1", 500)
PAID = {"charge_id": "ch-1", "amount_cents": 500}


@pytest.fixture(scope="module")
def address(stack: Stack) -> Iterator[str]:
    with OwnDatabase(stack.database) as made:
        with psycopg.connect(made.url, autocommit=True) as connection:
            create_storefront(connection)
            create_storefront(connection)  # again, at the next start
        yield made.url


@pytest.fixture
def connection(address: str) -> Iterator[Connection]:
    with psycopg.connect(address, autocommit=True) as made:
        made.execute("TRUNCATE storefront.orders, oncepool_outbox.requests, oncepool_outbox.inbox")
        yield made


def answer(connection: Connection, order_id: int, state: str, code: str, result: Any) -> None:
    """As a relay writes it."""
    connection.execute(
        "INSERT INTO oncepool_outbox.inbox (id, type, sender, state, code, result)"
        " VALUES (%s, 'shop.charge_card', 'default', %s, %s, %s)",
        [f"order-{order_id}", state, code, json.dumps(result)],
    )


def orders(connection: Connection) -> dict[int, tuple[str, str | None]]:
    return {
        order_id: (state, charge_id)
        for order_id, state, charge_id in connection.execute(
            "SELECT order_id, state, charge_id FROM storefront.orders"
        )
    }


class Answers:
    """A client whose calls are answered by what is told."""

    def __init__(self, told: Callable[[], Status]) -> None:
        self._told = told
        self.asked: list[tuple[str, int]] = []

    def call(self, _type: str, payload: Any, *, request_id: str, timeout: float) -> Status:
        assert timeout > 0
        self.asked.append((request_id, payload.amount_cents))
        return self._told()


def test_an_order_and_its_request_stand_together_or_not_at_all(connection: Connection) -> None:
    with connection.transaction():
        placed = place_order(connection, BASKET)
    with connection.transaction() as transaction:
        place_order(connection, BASKET)
        raise psycopg.Rollback(transaction)

    asked = connection.execute("SELECT id, payload FROM oncepool_outbox.requests").fetchall()
    assert orders(connection) == {placed: ("placed", None)}
    [(name, payload)] = asked
    assert name == f"order-{placed}"
    assert json.loads(payload) == {"order_id": placed, "card": "tok-1", "amount_cents": 500}


@pytest.mark.parametrize(
    "state, code, result, becomes",
    [
        ("done", "ok", PAID, ("paid", "ch-1")),
        ("rejected", "card_declined", None, ("declined", None)),
        ("rejected", "expired", None, ("unpaid", None)),
        ("failed", "worker_died", None, ("unsettled", None)),
        ("in_doubt", "handler_error", None, ("unsettled", None)),
        ("dead", "worker_died", None, ("unpaid", None)),
        ("undeliverable", "conflict", None, ("unpaid", None)),
    ],
)
def test_an_answer_moves_its_order_on(
    connection: Connection, state: str, code: str, result: Any, becomes: tuple[str, str | None]
) -> None:
    with connection.transaction():
        order_id = place_order(connection, BASKET)
    answer(connection, order_id, state, code, result)

    assert take_answers(connection) == 1
    assert take_answers(connection) == 0
    assert orders(connection) == {order_id: becomes}


def test_what_is_in_doubt_is_asked_for_again_under_the_same_id(connection: Connection) -> None:
    with connection.transaction():
        order_id = place_order(connection, BASKET)
    answer(connection, order_id, "in_doubt", "handler_error", None)
    take_answers(connection)

    def silent() -> Status:
        raise WaitTimeout(f"order-{order_id}", 1.0, None)

    def done() -> Status:
        return Status(
            f"order-{order_id}", "shop.charge_card", State.DONE, "ok", 1, 2, datetime.now(UTC),
            result=PAID,
        )  # fmt: skip

    for told, becomes in ((silent, ("unsettled", None)), (done, ("paid", "ch-1"))):
        client = Answers(told)
        assert settle_one(connection, client)  # type: ignore[arg-type]
        assert client.asked == [(f"order-{order_id}", 500)]
        assert orders(connection) == {order_id: becomes}
    assert not settle_one(connection, Answers(done))  # type: ignore[arg-type]
