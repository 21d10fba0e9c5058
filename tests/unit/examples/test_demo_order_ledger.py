"""The demo's books of the orders: what they account for, and what must not pass."""

from __future__ import annotations

from typing import Any

import pytest

from examples.demo.order_facts import order_charges
from examples.demo.order_ledger import OrderBook, OrderCharge, OrderRow, balance_orders

PAID = OrderRow(1, "paid", 500, "ch-1", "done/ok")
CHARGE = OrderCharge(1, "ch-1", 500)
DECLINED = OrderRow(2, "declined", 700, None, "rejected/card_declined")


def test_committed_orders_are_paid_once_or_declined_and_others_never() -> None:
    ledger = balance_orders(
        OrderBook(
            orders=[PAID, DECLINED],
            begun=range(1, 6),
            taken_back={4, 5},
            charges=[CHARGE],
            sends={"order-1": 2, "order-2": 1},
        )
    )

    assert ledger.balanced
    assert (ledger.begun, ledger.committed, ledger.rolled_back) == (5, 2, 3)
    assert (ledger.taken_back, ledger.cut_off) == (2, 1)
    assert (ledger.paid_once, ledger.declined, ledger.sent_again) == (1, 1, 1)
    assert ledger.as_json()["balanced"] is True


@pytest.mark.parametrize(
    "book, found",
    [
        (OrderBook([PAID], {1, 3}, {3}, [CHARGE, OrderCharge(3, "ch-2", 9)]), "without_order"),
        (OrderBook([PAID], {1, 3}, (), [CHARGE, OrderCharge(3, "ch-2", 9)]), "without_order"),
        (OrderBook([PAID], {1}, (), [CHARGE, CHARGE]), "charged_twice"),
        (OrderBook([PAID], {1}), "wrong"),
        (OrderBook([PAID], {1}, (), [OrderCharge(1, "ch-1", 499)]), "wrong"),
        (OrderBook([PAID], {1}, (), [OrderCharge(1, "ch-9", 500)]), "wrong"),
        (OrderBook([DECLINED], {2}, (), [OrderCharge(2, "ch-1", 700)]), "wrong"),
        (OrderBook([OrderRow(1, "placed", 500)], {1}), "wrong"),
        (OrderBook([OrderRow(1, "placed", 500)], {1}, (), [CHARGE]), "wrong"),
        (OrderBook([OrderRow(1, "unsettled", 500)], {1}, (), [CHARGE]), "wrong"),
        (OrderBook([PAID], (), (), [CHARGE]), "wrong"),
        (OrderBook([PAID], {1}, (), [CHARGE], left=1), "wrong"),
    ],
)
def test_the_books_do_not_balance(book: OrderBook, found: str) -> None:
    ledger = balance_orders(book)

    assert not ledger.balanced
    assert len(getattr(ledger, found)) == 1


def test_charges_of_orders_are_told_from_others() -> None:
    def call(event: str, key: str, **more: Any) -> dict[str, Any]:
        return {"event": event, "key": key, "body": {"amount_cents": 500}, **more}

    calls = [
        call("charge", "order-7", charge_id="ch-1"),
        call("charge", "demo_1-000017", charge_id="ch-2"),
        call("declined", "order-8"),
        call("repeat", "order-7"),
    ]

    assert order_charges(calls) == [OrderCharge(7, "ch-1", 500)] * 2
