"""A small shop: one handler for each way in which Oncepool runs requests.

    oncepool run examples.shop.app:app

shop.place_order       a transaction over the shop's own tables
shop.charge_card       an external effect: a call to the card service
shop.make_invoice      work for the processor, whose file is stored in the transaction
shop.record_page_view  a batch handler: many requests, one COPY
shop.send_reminder     delayed: by its producer, or as what follows an order
shop.ship_parcel       tried again while no carrier takes it, and dead after the third attempt
shop.recount_stock     coalesced: of many requests for one article the newest one runs
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from examples.shop.cards import Cards, CardServiceAway, Declined
from examples.shop.invoice import draw_invoice
from examples.shop.models import (
    Charge,
    Charged,
    Invoice,
    MadeInvoice,
    Order,
    PageView,
    Parcel,
    PlacedOrder,
    Recount,
    Recounted,
    Reminder,
    ShippedParcel,
)
from examples.shop.tables import create_tables
from processing import App, Done, NotDone, Reject, Request, Retry, RetryPolicy, Unknown

app = App()
log = logging.getLogger("shop")


@app.on_worker_start
def tables() -> None:
    """Create the shop's tables, where the environment says in which database.

    A worker that is replaced while the database is away must start all the same: by then the
    tables are there.
    """
    address = os.environ.get("ONCEPOOL_DATABASE_URL")
    if address is None:
        return
    try:
        create_tables(address)
    except psycopg.OperationalError as error:
        log.warning("the shop's tables were not checked: %s", error)


@app.on_worker_start
def cards() -> Cards:
    """The card service, for charge_card and its check."""
    return Cards(os.environ.get("SHOP_CARDS_URL", "http://127.0.0.1:8090"))


@app.handler("shop.place_order", timeout=10)
def place_order(order: Order, request: Request[Order], tx: psycopg.Cursor[Any]) -> PlacedOrder:
    """Take the articles out of the stock and write the order down."""
    wanted: dict[str, int] = {}
    for line in order.lines:
        wanted[line.article] = wanted.get(line.article, 0) + line.count
    prices: dict[str, int] = {}
    # Sorted: two orders for the same articles lock them in the same order. Orders that share a
    # transaction may still deadlock with others, and are redone: a key that names what they lock,
    # as the demo's orders have it, keeps them apart.
    for article, count in sorted(wanted.items()):
        tx.execute(
            "UPDATE shop.articles SET stock = stock - %(count)s "
            "WHERE article = %(article)s AND stock >= %(count)s RETURNING price_cents",
            {"article": article, "count": count},
        )
        row = tx.fetchone()
        if row is None:
            raise _refusal(article, tx)  # takes back what was taken out before it
        prices[article] = row[0]
    total = sum(prices[article] * count for article, count in wanted.items())
    tx.execute(
        "INSERT INTO shop.orders (request_id, customer, total_cents) VALUES (%s, %s, %s) "
        "RETURNING order_id",
        [request.id, order.customer, total],
    )
    order_id = _only_value(tx)
    tx.executemany(
        "INSERT INTO shop.order_lines (order_id, article, count, price_cents) "
        "VALUES (%s, %s, %s, %s)",
        [(order_id, article, count, prices[article]) for article, count in wanted.items()],
    )
    reminder = None
    if order.remind_after is not None:
        # Written with the order, in its transaction: both are there, or neither.
        reminder = request.follow_up(
            "shop.send_reminder",
            Reminder(order_id=order_id, customer=order.customer),
            at=datetime.now(UTC) + timedelta(seconds=order.remind_after),
        )
    return PlacedOrder(order_id=order_id, total_cents=total, reminder=reminder)


def _refusal(article: str, tx: psycopg.Cursor[Any]) -> Reject:
    tx.execute("SELECT 1 FROM shop.articles WHERE article = %s", [article])
    if tx.fetchone() is None:
        return Reject("unknown_article", f"there is no article {article!r}")
    return Reject("out_of_stock", f"not enough of {article!r} left")


def _only_value(tx: psycopg.Cursor[Any]) -> Any:
    row = tx.fetchone()
    assert row is not None  # noqa: S101 - INSERT ... RETURNING gives one
    return row[0]


def was_charged(request: Request[Charge], cards: Cards) -> Done | NotDone | Unknown:
    """Ask the card service about a charge that is in doubt.

    A call may still be on its way while this says NotDone. It does no harm: the next run hands on
    the same key, and the card service charges once for each key.
    """
    try:
        charged = cards.find(request.id)
    except CardServiceAway:
        return Unknown()
    return NotDone() if charged is None else Done(charged)


@app.handler("shop.charge_card", effect="external", timeout=30, check=was_charged)
def charge_card(charge: Charge, request: Request[Charge], cards: Cards) -> Charged:
    """Charge a card. The request's id is the key by which the card service knows a repeat."""
    try:
        return cards.charge(request.id, charge)
    except Declined as declined:
        raise Reject("card_declined", str(declined)) from declined
    except CardServiceAway as away:
        # Nothing was sent. What else may be raised leaves the charge in doubt.
        raise Retry(after=5, reason=str(away)) from away


@app.handler("shop.make_invoice", timeout=60)
def make_invoice(
    invoice: Invoice, request: Request[Invoice], tx: psycopg.Cursor[Any]
) -> MadeInvoice:
    """Draw the invoice as PDF and store it."""
    drawn = draw_invoice(invoice, stop=lambda: request.stopping)
    if drawn is None:
        raise Retry(reason="this worker must stop")
    tx.execute(
        "INSERT INTO shop.invoices (request_id, order_id, total_cents, pdf) "
        "VALUES (%s, %s, %s, %s) RETURNING invoice_id",
        [request.id, invoice.order_id, drawn.total_cents, drawn.pdf],
    )
    invoice_id = _only_value(tx)
    return MadeInvoice(
        invoice_id=invoice_id,
        pages=drawn.pages,
        size=len(drawn.pdf),
        total_cents=drawn.total_cents,
    )


@app.batch_handler("shop.record_page_view")
def record_page_views(requests: list[Request[PageView]], tx: psycopg.Cursor[Any]) -> list[None]:
    """Write all of them with one COPY."""
    with tx.copy("COPY shop.page_views (request_id, path, visitor, viewed_at) FROM STDIN") as copy:
        for request in requests:
            view = request.payload
            copy.write_row((request.id, view.path, view.visitor, view.viewed_at))
    return [None for _ in requests]


@app.handler("shop.send_reminder", timeout=10)
def send_reminder(reminder: Reminder, request: Request[Reminder], tx: psycopg.Cursor[Any]) -> None:
    """Ask a customer for a review. When, says whoever asks for it; nothing here knows of it."""
    tx.execute(
        "INSERT INTO shop.reminders (request_id, order_id, customer) VALUES (%s, %s, %s)",
        [request.id, reminder.order_id, reminder.customer],
    )


class NoCarrier(Exception):
    """Nobody takes the parcel now; somebody may later."""


# Pauses of half a second and a second, for the demo. A real carrier would get hours.
@app.handler(
    "shop.ship_parcel", timeout=10, retries=RetryPolicy(attempts=3, base=0.5, on=NoCarrier)
)
def ship_parcel(parcel: Parcel, request: Request[Parcel], tx: psycopg.Cursor[Any]) -> ShippedParcel:
    """Hand a parcel to the carrier of its region, who may not come at the first call."""
    tx.execute(
        "SELECT carrier, comes_at_call FROM shop.carriers WHERE region = %s", [parcel.region]
    )
    found = tx.fetchone()
    if found is None:
        raise NoCarrier(f"no carrier goes to {parcel.region!r}")
    carrier, comes_at_call = found
    if request.attempt < comes_at_call:
        raise NoCarrier(f"the {carrier} has not come at call {request.attempt}")
    tx.execute(
        "INSERT INTO shop.parcels (request_id, order_id, carrier) VALUES (%s, %s, %s) "
        "RETURNING parcel_id",
        [request.id, parcel.order_id, carrier],
    )
    return ShippedParcel(parcel_id=_only_value(tx), carrier=carrier)


@app.handler(
    "shop.recount_stock",
    timeout=10,
    coalesce=lambda recount: recount.article,
    window=1,
    window_cap=3,
)
def recount_stock(
    recount: Recount, request: Request[Recount], tx: psycopg.Cursor[Any]
) -> Recounted:
    """Write down what is in stock of an article. Of those that wait only the newest is run."""
    tx.execute(
        "INSERT INTO shop.stock_counts (request_id, article, stock) "
        "SELECT %s, article, stock FROM shop.articles WHERE article = %s RETURNING stock",
        [request.id, recount.article],
    )
    found = tx.fetchone()
    if found is None:
        raise Reject("unknown_article", f"there is no article {recount.article!r}")
    tx.execute("SELECT count(*) FROM shop.stock_counts WHERE article = %s", [recount.article])
    return Recounted(article=recount.article, stock=found[0], times=_only_value(tx))
