"""The example shop over a real database, with the test kit's savepoint around each run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql

from examples.shop.app import (
    app,
    make_invoice,
    place_order,
    record_page_views,
    recount_stock,
    send_reminder,
    ship_parcel,
)
from examples.shop.tables import create_tables
from processing.testing import Kit
from stack import Stack


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[str]:
    """A database of its own: other tests may run the shop as well, and count its rows."""
    name = f"shop_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    address = conninfo.make_conninfo(stack.database, dbname=name)
    create_tables(address)
    yield address
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def tx(database: str) -> Iterator[psycopg.Cursor[Any]]:
    with psycopg.connect(database) as connection:
        yield connection.cursor()
        connection.rollback()


@pytest.fixture
def kit() -> Iterator[Kit]:
    with Kit(app, {"cards": None}) as kit:
        yield kit


def test_many_workers_create_the_tables_at_once(database: str) -> None:
    errors: list[Exception] = []

    def create() -> None:
        try:
            create_tables(database)
        except psycopg.Error as error:
            errors.append(error)

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA shop CASCADE")
    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_an_order_is_written_down_and_its_articles_are_gone(
    kit: Kit, tx: psycopg.Cursor[Any]
) -> None:
    before = _stock(tx, "tea")
    lines = [{"article": "tea", "count": 2}, {"article": "mug"}]
    outcome = kit.run(place_order, {"customer": "a", "lines": lines}, tx=tx, id="o-1")
    assert outcome.state == "done", outcome.error
    assert outcome.result["total_cents"] == 2 * 450 + 1290
    tx.execute("SELECT request_id, total_cents FROM shop.orders")
    assert tx.fetchall() == [("o-1", 2190)]
    tx.execute("SELECT article, count, price_cents FROM shop.order_lines ORDER BY 1")
    assert tx.fetchall() == [("mug", 1, 1290), ("tea", 2, 450)]
    assert _stock(tx, "tea") == before - 2


def test_a_refused_order_leaves_nothing(kit: Kit, tx: psycopg.Cursor[Any]) -> None:
    before = _stock(tx, "last-one")
    for article, code in (("no such", "unknown_article"), ("mug", "out_of_stock")):
        lines = [{"article": "last-one"}, {"article": article, "count": 1000}]
        if code == "out_of_stock":
            tx.execute("UPDATE shop.articles SET stock = 5 WHERE article = 'mug'")
        outcome = kit.run(place_order, {"customer": "a", "lines": lines}, tx=tx)
        assert (outcome.state, outcome.code) == ("rejected", code)
        assert _stock(tx, "last-one") == before
    tx.execute("SELECT count(*) FROM shop.orders")
    assert tx.fetchone() == (0,)


def test_an_error_of_the_database_is_taken_back_too(kit: Kit, tx: psycopg.Cursor[Any]) -> None:
    lines = [{"article": "tea"}]
    outcome = kit.run(place_order, {"customer": "a\0b", "lines": lines}, tx=tx)
    assert (outcome.state, outcome.code) == ("failed", "handler_error")
    assert _stock(tx, "tea") > 0  # the transaction goes on


def test_an_invoice_is_stored(kit: Kit, tx: psycopg.Cursor[Any]) -> None:
    lines = [{"article": "tea", "count": 2, "price_cents": 450}]
    invoice = {"order_id": 17, "customer": "a", "lines": lines}
    outcome = kit.run(make_invoice, invoice, tx=tx, id="i-1")
    tx.execute("SELECT request_id, order_id, total_cents, length(pdf) FROM shop.invoices")
    assert tx.fetchall() == [("i-1", 17, 900, outcome.result["size"])]


def test_page_views_are_copied(kit: Kit, tx: psycopg.Cursor[Any]) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    views = [{"path": f"/{n}", "viewed_at": when.isoformat()} for n in range(50)]
    outcomes = kit.run_batch(record_page_views, views, tx=tx)
    assert {o.state for o in outcomes} == {"done"}
    tx.execute("SELECT count(*), min(viewed_at) FROM shop.page_views")
    assert tx.fetchone() == (50, when)


def test_reminders_are_written(kit: Kit, tx: psycopg.Cursor[Any]) -> None:
    reminder = {"order_id": 17, "customer": "a"}
    outcome = kit.run(send_reminder, reminder, tx=tx, id="r-1")
    assert outcome.state == "done", outcome.error
    tx.execute("SELECT request_id, order_id, customer FROM shop.reminders")
    assert tx.fetchall() == [("r-1", 17, "a")]


def test_parcels_go_with_the_carrier_that_comes(kit: Kit, tx: psycopg.Cursor[Any]) -> None:
    ends = []
    for region in ("mainland", "island", "mountain", "moon"):
        parcel = {"order_id": 17, "region": region}
        attempts = [kit.run(ship_parcel, parcel, tx=tx, id=region, attempt=n) for n in (1, 2, 3)]
        ends.append([outcome.state for outcome in attempts])
    assert ends == [
        ["done", "done", "done"], ["failed", "done", "done"],
        ["failed", "failed", "done"], ["failed", "failed", "failed"],
    ]  # fmt: skip
    tx.execute("SELECT carrier, count(*) FROM shop.parcels GROUP BY 1 ORDER BY 2 DESC")
    assert tx.fetchall() == [("van", 3), ("ferry", 2), ("mule", 1)]
    tx.execute("INSERT INTO shop.carriers VALUES ('moon', 'rocket', 1)")
    outcome = kit.run(ship_parcel, {"order_id": 17, "region": "moon"}, tx=tx)
    assert outcome.result["carrier"] == "rocket"


def test_stock_is_counted(kit: Kit, tx: psycopg.Cursor[Any]) -> None:
    for times in (1, 2):
        outcome = kit.run(recount_stock, {"article": "tea"}, tx=tx)
        assert outcome.result == {"article": "tea", "stock": _stock(tx, "tea"), "times": times}
    outcome = kit.run(recount_stock, {"article": "no such"}, tx=tx)
    assert (outcome.state, outcome.code) == ("rejected", "unknown_article")


def _stock(tx: psycopg.Cursor[Any], article: str) -> int:
    tx.execute("SELECT stock FROM shop.articles WHERE article = %s", [article])
    (stock,) = tx.fetchone() or (0,)
    return int(stock)
