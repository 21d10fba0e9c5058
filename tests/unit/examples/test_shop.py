"""The example shop, with the test kit and its card service."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.shop.app import (
    app,
    charge_card,
    make_invoice,
    place_order,
    record_page_views,
    recount_stock,
    send_reminder,
    ship_parcel,
)
from examples.shop.card_service import CardService, read_ledger
from examples.shop.cards import Cards
from processing import Done, NotDone, Unknown
from processing.handlers.app import load_app
from processing.testing import FakeCursor, Kit

CHARGE = {"order_id": 1, "card": "tok-1", "amount_cents": 500}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[CardService]:
    with CardService(tmp_path / "charges.jsonl") as service:
        yield service


@pytest.fixture
def kit(service: CardService) -> Iterator[Kit]:
    with Kit(app, {"cards": Cards(service.url, timeout=5)}) as kit:
        yield kit


def events(tmp_path: Path) -> list[str]:
    return [entry["event"] for entry in read_ledger(tmp_path / "charges.jsonl")]


def test_it_loads_as_the_command_line_does() -> None:
    assert load_app("examples.shop.app:app") is app
    assert set(app.handlers) == {
        "shop.place_order", "shop.charge_card", "shop.make_invoice", "shop.record_page_view",
        "shop.send_reminder", "shop.ship_parcel", "shop.recount_stock",
    }  # fmt: skip


def test_an_order_takes_articles_in_one_order_and_adds_up(kit: Kit) -> None:
    tx = FakeCursor([(1290,)], [(450,)], [(17,)])
    lines = [{"article": "tea", "count": 2}, {"article": "mug"}, {"article": "tea"}]
    outcome = kit.run(place_order, {"customer": "a", "lines": lines}, tx=tx, id="o-1")
    assert outcome.result == {"order_id": 17, "total_cents": 2640, "reminder": None}
    assert outcome.follow_ups == ()
    assert [p["article"] for _, p in tx.statements[:2]] == ["mug", "tea"]
    assert tx.statements[2][1] == ["o-1", "a", 2640]


def test_an_order_asks_for_a_reminder_at_its_time(kit: Kit) -> None:
    order = {"customer": "a", "lines": [{"article": "tea"}], "remind_after": 60}
    outcome = kit.run(place_order, order, tx=FakeCursor([(450,)], [(17,)]))
    (reminder,) = outcome.follow_ups
    assert outcome.result["reminder"] == reminder.id
    assert (reminder.type, json.loads(reminder.payload)) == (
        "shop.send_reminder", {"order_id": 17, "customer": "a"},
    )  # fmt: skip
    assert reminder.due is not None
    assert timedelta(seconds=50) < reminder.due - datetime.now(UTC) <= timedelta(seconds=60)


@pytest.mark.parametrize("found, code", [([], "unknown_article"), ([(1,)], "out_of_stock")])
def test_orders_that_cannot_be_filled(kit: Kit, found: list[Any], code: str) -> None:
    payload = {"customer": "a", "lines": [{"article": "x"}]}
    outcome = kit.run("shop.place_order", payload, tx=FakeCursor([], found))
    assert (outcome.state, outcome.code) == ("rejected", code)


@pytest.mark.parametrize(
    "payload", [{}, {"customer": "a", "lines": []}, {"customer": "", "lines": [{"article": "x"}]}]
)
def test_orders_of_the_wrong_shape(kit: Kit, payload: Any) -> None:
    outcome = kit.run("shop.place_order", payload, tx=FakeCursor())
    assert (outcome.state, outcome.code) == ("rejected", "invalid_payload")


def test_a_charge_and_its_repeat(kit: Kit, tmp_path: Path) -> None:
    first = kit.run(charge_card, CHARGE, id='p-1 "é"')
    assert first.result == {"charge_id": "ch-1", "amount_cents": 500}
    assert kit.run(charge_card, CHARGE, id='p-1 "é"').result == first.result
    assert events(tmp_path) == ["charge", "repeat"]
    assert kit.check(charge_card, CHARGE, id='p-1 "é"') == Done(_charged("ch-1"))
    assert kit.check(charge_card, CHARGE, id="p-2") == NotDone()


def _charged(number: str) -> Any:
    from examples.shop.models import Charged

    return Charged(charge_id=number, amount_cents=500)


def test_a_declined_card_and_a_key_used_twice(kit: Kit, tmp_path: Path) -> None:
    outcome = kit.run(charge_card, CHARGE | {"card": "declined"}, id="p-1")
    assert (outcome.state, outcome.code) == ("rejected", "card_declined")
    assert outcome.reason == "the card was declined"
    kit.run(charge_card, CHARGE, id="p-2")
    outcome = kit.run(charge_card, CHARGE | {"amount_cents": 501}, id="p-2")
    assert (outcome.state, outcome.code) == ("in_doubt", "handler_error")
    assert events(tmp_path) == ["declined", "charge", "conflict"]


def test_a_lost_reply_is_in_doubt_and_the_check_finds_the_charge(
    kit: Kit, service: CardService, tmp_path: Path
) -> None:
    service.lose_replies = 1.0
    outcome = kit.run(charge_card, CHARGE, id="p-1")
    assert (outcome.state, outcome.code) == ("in_doubt", "handler_error")
    assert kit.check(charge_card, CHARGE, id="p-1") == Done(_charged("ch-1"))
    assert events(tmp_path) == ["charge"]


def test_a_service_that_is_away(tmp_path: Path) -> None:
    with CardService(tmp_path / "gone.jsonl") as gone:
        address = gone.url
    with Kit(app, {"cards": Cards(address)}) as kit:
        outcome = kit.run(charge_card, CHARGE)
        assert (outcome.state, outcome.code) == ("failed", "retry")
        assert "no connection to the card service" in (outcome.reason or "")
        assert outcome.retry_at is not None
        assert kit.check(charge_card, CHARGE) == Unknown()


def test_the_ledger_outlives_the_service(tmp_path: Path) -> None:
    ledger = tmp_path / "charges.jsonl"
    for _ in range(2):
        with CardService(ledger) as service, Kit(app, {"cards": Cards(service.url)}) as kit:
            assert kit.run(charge_card, CHARGE, id="p-1").result["charge_id"] == "ch-1"
    assert [entry["event"] for entry in read_ledger(ledger)] == ["charge", "repeat"]


def test_one_key_at_once_is_charged_once(
    service: CardService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = Cards(service.url)
    write = service.ledger._write

    def write_slowly(*arguments: Any, **more: Any) -> Any:
        time.sleep(0.02)  # leaves the others time to come in between
        return write(*arguments, **more)

    monkeypatch.setattr(service.ledger, "_write", write_slowly)

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", cards._port, timeout=10)
        connection.request("POST", "/charges", json.dumps(CHARGE), {"Idempotency-Key": "k"})
        assert connection.getresponse().status in {200, 201}
        connection.close()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(events(tmp_path)) == ["charge", *["repeat"] * 7]


def test_the_service_refuses_what_is_no_charge(service: CardService) -> None:
    cards = Cards(service.url)
    assert cards._call("POST", "/charges", "k", {"card": "x"})[0] == 400
    assert cards._call("POST", "/charges", "", CHARGE)[0] == 400
    assert cards._call("POST", "/elsewhere", "k", CHARGE)[0] == 400
    assert cards._call("GET", "/charges/none")[0] == 404


INVOICE = {
    "order_id": 17,
    "customer": "Zoë 東京",
    "lines": [{"article": "tea " * 40, "count": 2, "price_cents": 450}] * 60,
}


def test_an_invoice_is_a_pdf_and_always_the_same(kit: Kit) -> None:
    stored = []
    for _ in range(2):
        tx = FakeCursor([(9,)])
        outcome = kit.run(make_invoice, INVOICE, tx=tx)
        stored.append(tx.statements[0][1][3])
    assert outcome.result == {
        "invoice_id": 9, "pages": 3, "size": len(stored[0]), "total_cents": 54000,
    }  # fmt: skip
    assert stored[0].startswith(b"%PDF-")
    assert stored[0] == stored[1]


def test_an_invoice_stops_when_its_worker_must(kit: Kit) -> None:
    outcome = kit.run(make_invoice, INVOICE, tx=FakeCursor(), stopping=True)
    assert (outcome.state, outcome.code) == ("failed", "retry")


def test_page_views_go_out_in_one_copy(kit: Kit) -> None:
    tx = FakeCursor()
    when = datetime(2026, 1, 2, tzinfo=UTC)
    views = [{"path": f"/{n}", "viewed_at": when.isoformat()} for n in range(3)]
    outcomes = kit.run_batch(record_page_views, [*views, {"path": "/x"}], tx=tx)
    assert [o.state for o in outcomes] == ["done", "done", "done", "rejected"]
    assert [row[1:] for row in tx.copied] == [(f"/{n}", None, when) for n in range(3)]
    assert len(tx.statements) == 1


def test_a_reminder_is_written_down(kit: Kit) -> None:
    tx = FakeCursor()
    reminder = {"order_id": 17, "customer": "a"}
    assert kit.run(send_reminder, reminder, tx=tx, id="r-1").state == "done"
    assert tx.statements[0][1] == ["r-1", 17, "a"]


PARCEL = {"order_id": 17, "region": "island"}


def test_a_parcel_waits_for_its_carrier(kit: Kit) -> None:
    outcome = kit.run(ship_parcel, PARCEL, tx=FakeCursor([("ferry", 2)]))
    assert (outcome.state, outcome.code) == ("failed", "handler_error")
    assert "the ferry has not come" in (outcome.error or "")
    tx = FakeCursor([("ferry", 2)], [(9,)])
    outcome = kit.run(ship_parcel, PARCEL, tx=tx, attempt=2)
    assert outcome.result == {"parcel_id": 9, "carrier": "ferry"}


def test_a_parcel_that_nobody_takes_is_worth_three_attempts(kit: Kit) -> None:
    outcome = kit.run(ship_parcel, PARCEL, tx=FakeCursor([]), attempt=3)
    assert "no carrier goes to 'island'" in (outcome.error or "")
    policy = app.handlers["shop.ship_parcel"].retries
    assert policy.attempts == 3
    assert isinstance(outcome.exception, policy.on)


def test_stock_is_counted_under_its_article(kit: Kit) -> None:
    handler = app.handlers["shop.recount_stock"]
    assert handler.coalesce is not None
    payload, _ = handler.parse(b'{"article": "tea"}', "application/json")
    assert handler.coalesce(payload) == "tea"
    outcome = kit.run(recount_stock, {"article": "tea"}, tx=FakeCursor([(5,)], [(3,)]))
    assert outcome.result == {"article": "tea", "stock": 5, "times": 3}
    outcome = kit.run(recount_stock, {"article": "x"}, tx=FakeCursor([]))
    assert (outcome.state, outcome.code) == ("rejected", "unknown_article")


def test_a_worker_starts_while_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ONCEPOOL_DATABASE_URL", "postgresql://127.0.0.1:1/shop")
    with Kit(app) as kit:
        outcome = kit.run(make_invoice, INVOICE, tx=FakeCursor([(1,)]))
    assert outcome.state == "done"
    assert "the shop's tables were not checked" in caplog.text
