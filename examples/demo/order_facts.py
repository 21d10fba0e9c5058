"""Reads what the books of the orders are made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from examples.demo.order_ledger import OrderBook, OrderCharge, OrderRow
from examples.shop.card_service import read_ledger
from examples.shop.storefront import PREFIX

CHARGED = frozenset({"charge", "repeat"})
"""Calls of the card service that found the card good. A repeat takes no money, but is a run too
many of its handler."""


def read(address: str, notes: Path, charges: Path) -> OrderBook:
    """Reads everything.

    `address`: of the storefront's database; `notes`: the file with the numbers of orders that were
    taken back; `charges`: the card service's record.
    """
    with psycopg.connect(address) as database:
        orders = database.execute(
            "SELECT order_id, state, amount_cents, charge_id, charge_end FROM storefront.orders"
        ).fetchall()
        sends = database.execute("SELECT id, sends FROM oncepool_outbox.all_requests").fetchall()
        left = _only(database, "SELECT count(*) FROM oncepool_outbox.requests")
        last = _only(database, "SELECT pg_sequence_last_value('storefront.orders_order_id_seq')")
    return OrderBook(
        orders=[OrderRow(*row) for row in orders],
        # What is rolled back does not give its number back.
        begun=range(1, last + 1),
        taken_back={int(line) for line in notes.read_text().splitlines()},
        charges=order_charges(read_ledger(charges)),
        sends=dict(sends),
        left=left,
    )


def order_charges(calls: Sequence[dict[str, Any]]) -> list[OrderCharge]:
    """Of all calls of the card service those for orders of the storefront."""
    numbers = {call["key"]: call["charge_id"] for call in calls if call["event"] == "charge"}
    return [
        OrderCharge(
            int(call["key"].removeprefix(PREFIX)),
            numbers.get(call["key"], ""),
            call["body"]["amount_cents"],
        )
        for call in calls
        if call["event"] in CHARGED and call["key"].startswith(PREFIX)
    ]


def _only(database: psycopg.Connection[Any], statement: str) -> int:
    row = database.execute(statement.encode()).fetchone()
    return 0 if row is None else int(row[0] or 0)
