"""The shop's other side: a web shop with orders in a database of its own, that asks for payments.

An order and the request to charge its card are written in one transaction, through the outbox; what
becomes of the charge comes back as a row of the outbox's inbox, and moves the order on:

placed     its charge has no end yet
paid       charged, once
declined   the card was refused; nothing was charged
unsettled  its charge failed or is in doubt: asked for again, under the same id
unpaid     the charge came to another end: somebody has to look at it

`charge_end` is how the charge ended last.

`place_order_unsafely` is the same without an outbox: what goes wrong then, `oncepool demo
--no-outbox` shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psycopg

from examples.shop.models import Charge
from feedback import Client, Status, outbox
from feedback.errors import OncepoolError
from feedback.outbox.migrations import migrate

CHARGE = "shop.charge_card"
OUTBOX = "oncepool_outbox"
PREFIX = "order-"
"""Of ids: one order is charged by one request, whose id follows from its number."""
PATIENCE = 10.0
"""Seconds to wait for what is asked for again; then it is another one's turn."""
AGAIN = frozenset({"failed", "in_doubt"})

_TABLES = Path(__file__).with_name("storefront.sql")
_PLACE = """
INSERT INTO storefront.orders (customer, card, amount_cents) VALUES (%s, %s, %s) RETURNING order_id
"""
_TAKE = """
DELETE FROM oncepool_outbox.inbox WHERE n = ANY(ARRAY(
    SELECT n FROM oncepool_outbox.inbox ORDER BY n LIMIT %s FOR UPDATE SKIP LOCKED))
RETURNING id, state, code, result
"""
_MOVE = """
UPDATE storefront.orders SET state = %s, charge_id = %s, charge_end = %s
WHERE order_id = %s AND state IN ('placed', 'unsettled')
"""
_UNSETTLED = """
SELECT order_id, card, amount_cents FROM storefront.orders WHERE state = 'unsettled'
ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_PLACED = "SELECT order_id FROM storefront.orders WHERE state = 'placed' ORDER BY order_id LIMIT %s"

Connection: TypeAlias = psycopg.Connection[Any]


class Basket(NamedTuple):
    """What a customer wants to pay for, and how."""

    customer: str
    card: str
    amount_cents: int


def create_storefront(connection: Connection) -> None:
    """Create the table of orders and the outbox, where they are missing."""
    connection.execute(_TABLES.read_bytes())
    migrate(connection, OUTBOX, [])


def charge_id_of(order_id: int) -> str:
    """The id of the request that charges an order: the same one whoever asks, and when."""
    return f"{PREFIX}{order_id}"


def place_order(connection: Connection, basket: Basket) -> int:
    """Write an order and ask for its payment, in the transaction that is open; the order's number.

    Rolled back, there is neither. Committed, the order will be charged once, whatever dies.
    """
    order_id = _write(connection, basket)
    charge = Charge(order_id=order_id, card=basket.card, amount_cents=basket.amount_cents)
    outbox.add(connection, CHARGE, charge, request_id=charge_id_of(order_id))
    return order_id


def place_order_unsafely(connection: Connection, basket: Basket, client: Client) -> int:
    """The same without an outbox: sent before anybody knows whether there will be an order.

    Sent after the commit instead, it would be missing where this process dies in between.
    """
    order_id = _write(connection, basket)
    charge = Charge(order_id=order_id, card=basket.card, amount_cents=basket.amount_cents)
    client.submit(CHARGE, charge, request_id=charge_id_of(order_id))
    client.flush()
    return order_id


def take_answers(connection: Connection, at_once: int = 100) -> int:
    """Move orders on by what the inbox says of their charges; how many.

    An answer goes with the transaction that works on it: it is worked on once.
    """
    with connection.transaction():
        answers = connection.execute(_TAKE, [at_once]).fetchall()
        for request_id, state, code, result in answers:
            _move(connection, _order_of(request_id), state, code, result)
    return len(answers)


def settle_one(connection: Connection, client: Client) -> bool:
    """Ask again for a charge that failed or is in doubt; whether there was one.

    Under the same id, so that it can't be charged twice: of a charge in doubt the consumer finds
    out first whether it was made. An order whose answer does not come in time stays unsettled.
    """
    with connection.transaction():
        found = connection.execute(_UNSETTLED).fetchone()
        if found is None:
            return False
        order_id, card, amount_cents = found
        charge = Charge(order_id=order_id, card=card, amount_cents=amount_cents)
        try:
            status = client.call(
                CHARGE, charge, request_id=charge_id_of(order_id), timeout=PATIENCE
            )
        except OncepoolError:  # no answer in time, or Redis is away
            return True
        _move_by_status(connection, status)
    return True


def ask_for_answers(connection: Connection, client: Client, at_once: int = 500) -> None:
    """Move orders on by what stands in Redis: all that there is without an outbox."""
    with connection.transaction():
        placed = connection.execute(_PLACED, [at_once]).fetchall()
        for status in client.statuses([charge_id_of(order_id) for (order_id,) in placed]):
            if status is not None and status.settled:
                _move_by_status(connection, status)


def _write(connection: Connection, basket: Basket) -> int:
    row = connection.execute(_PLACE, basket).fetchone()
    assert row is not None  # noqa: S101 - INSERT ... RETURNING gives one
    return int(row[0])


def _order_of(request_id: str) -> int:
    return int(request_id.removeprefix(PREFIX))


def _move_by_status(connection: Connection, status: Status) -> None:
    _move(connection, _order_of(status.id), str(status.state), status.code, status.result)


def _move(connection: Connection, order_id: int, state: str, code: str, result: Any) -> None:
    """By how its charge ended."""
    to, charge_id = "unpaid", None
    if state == "done":
        to, charge_id = "paid", result["charge_id"]
    elif state == "rejected" and code == "card_declined":
        to = "declined"
    elif state in AGAIN:
        to = "unsettled"
    connection.execute(_MOVE, [to, charge_id, f"{state}/{code}", order_id])
