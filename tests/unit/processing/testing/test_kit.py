"""The test kit: handlers run in it as they do in a worker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from processing import App, Done, NotDone, Reject, Request, Retry
from processing.testing import FakeCursor, Kit, KitError, run, run_batch

app = App()


class Payment(BaseModel):
    amount: int


class Receipt(BaseModel):
    number: str


@app.on_worker_start
def bank() -> dict[str, Any]:
    return {"bank": {"name": "real"}}


@app.handler("pay", timeout=5)
def pay(payment: Payment, tx: Any, request: Request[Payment], bank: dict[str, str]) -> Receipt:
    if payment.amount == 0:
        raise Reject("nothing_to_pay", "amount is 0")
    if payment.amount < 0:
        raise Retry(after=60, reason="later")
    if payment.amount > 100:
        raise ValueError("too much")
    if request.stopping:
        raise SystemExit
    tx.execute("INSERT INTO payments VALUES (%s, %s)", (request.id, payment.amount))
    tx.execute("SELECT nextval('receipt')")
    (number,) = tx.fetchone()
    return Receipt(number=f"{bank['name']}-{number}-{request.headers.get('tenant', '')}")


def asked(request: Request[Payment], bank: dict[str, str]) -> Done | NotDone:
    return Done({"number": bank["name"]}) if request.payload.amount else NotDone()


@app.handler("charge", effect="external", check=asked)
def charge(payment: Payment) -> Receipt:
    raise OSError("the line is dead")


@app.batch_handler("view")
def view(requests: list[Request[Payment]], tx: Any) -> list[Any]:
    with tx.copy("COPY views FROM STDIN") as copy:
        for request in requests:
            copy.write_row((request.id, request.payload.amount))
    if len(requests) > 2:
        raise OSError("too many")
    return [Reject("zero") if r.payload.amount == 0 else r.payload.amount for r in requests]


def test_success() -> None:
    tx = FakeCursor([(7,)])
    outcome = run(app, "pay", {"amount": 3}, tx=tx, id="p-1", headers={"tenant": "a"})
    assert (outcome.state, outcome.code) == ("done", "ok")
    assert outcome.result == {"number": "real-7-a"}
    assert tx.statements[0] == ("INSERT INTO payments VALUES (%s, %s)", ("p-1", 3))


@pytest.mark.parametrize(
    "payload, state, code",
    [
        ({"amount": 0}, "rejected", "nothing_to_pay"),
        ({"amount": -1}, "failed", "retry"),
        ({"amount": 101}, "failed", "handler_error"),
        ({"amount": "x"}, "rejected", "invalid_payload"),
        (b"{", "rejected", "invalid_payload"),
        (None, "rejected", "invalid_payload"),
        (Payment(amount=0), "rejected", "nothing_to_pay"),
    ],
)
def test_other_ends(payload: Any, state: str, code: str) -> None:
    outcome = run(app, pay, payload, tx=FakeCursor())
    assert (outcome.state, outcome.code) == (state, code)
    assert outcome.exception is not None


def test_details_of_other_ends() -> None:
    with Kit(app) as kit:
        assert kit.run(pay, {"amount": 0}, tx=FakeCursor()).reason == "amount is 0"
        retried = kit.run(pay, {"amount": -1}, tx=FakeCursor())
        assert retried.retry_at is not None
        assert retried.retry_at > datetime.now(UTC)
        failed = kit.run(pay, {"amount": 101}, tx=FakeCursor())
        assert failed.error is not None
        assert failed.error.startswith("ValueError: too much (")
        stopped = kit.run(pay, {"amount": 1}, tx=FakeCursor(), stopping=True)
        assert (stopped.state, stopped.code) == ("failed", "handler_error")
        assert kit.run(pay, {"amount": 1}, tx=FakeCursor([(1,)])).state == "done"


def test_what_a_test_gives_is_as_it_was_whatever_handlers_do_to_it() -> None:
    own = App()

    def mark(payload: dict[str, Any]) -> Any:
        return payload.pop("n")

    @own.handler("own", fingerprint=mark)
    def take(payload: dict[str, Any], request: Request[Any]) -> Any:
        return [payload.pop("n"), request.headers.pop("tenant")]

    headers = {"tenant": "acme"}
    for _ in range(2):
        assert run(own, "own", {"n": 1}, headers=headers).result == [1, "acme"]


def test_resources_stand_in_for_hooks() -> None:
    outcome = run(app, pay, {"amount": 1}, tx=FakeCursor([(1,)]), resources={"bank": {"name": "x"}})
    assert outcome.result == {"number": "x-1-"}


def test_external_effects() -> None:
    with Kit(app) as kit:
        outcome = kit.run("charge", {"amount": 1})
        assert (outcome.state, outcome.code) == ("in_doubt", "handler_error")
        assert kit.check("charge", {"amount": 1}) == Done({"number": "real"})
        assert kit.check(charge, {"amount": 0}) == NotDone()
        with pytest.raises(KitError, match="has no check="):
            kit.check(pay, {"amount": 0})


def test_batch() -> None:
    tx = FakeCursor()
    outcomes = run_batch(app, view, [{"amount": 1}, {}, {"amount": 0}], tx=tx)
    assert [(o.state, o.code) for o in outcomes] == [
        ("done", "ok"),
        ("rejected", "invalid_payload"),
        ("rejected", "zero"),
    ]
    assert [row[1] for row in tx.copied] == [1, 0]
    outcomes = run_batch(app, "view", [{"amount": 1}] * 3, tx=FakeCursor())
    assert {o.code for o in outcomes} == {"handler_error"}


def test_mistakes_of_the_test_are_told() -> None:
    with Kit(app, {"bank": {}}) as kit:
        for call, message in (
            (lambda: kit.run("payy", {}), "no handler of type 'payy'; did you mean 'pay'"),
            (lambda: kit.run(len, {}), "no handler of type <built-in"),
            (lambda: kit.run("pay", {}), "it takes tx; give tx="),
            (lambda: kit.run("view", {}, tx=1), r"use run_batch\(\) for it"),
            (lambda: kit.run_batch("pay", [], tx=1), r"use run\(\) for it"),
            (lambda: kit.run("charge", b'{"amount":1}', ide=1), "no field of a request 'ide'; did"),
        ):
            with pytest.raises(KitError, match=message):
                call()


def test_fake_cursor_says_how_many_rows_were_hit() -> None:
    tx = FakeCursor([(1,), (2,)], rowcounts=[3, 0])
    assert [tx.execute("a").rowcount for _ in range(3)] == [3, 0, -1]
    assert tx.fetchall() == [(1,), (2,)]
    assert tx.rowcount == 2


def test_fake_cursor_answers_in_order() -> None:
    tx = FakeCursor([(1,), (2,), (3,)], [], [(4,)])
    assert tx.execute("a").fetchone() == (1,)
    assert tx.fetchmany(5) == [(2,), (3,)]
    assert tx.fetchone() is None
    assert tx.execute("b").fetchall() == []
    tx.executemany("c", [1, 2])
    assert list(tx) == [(4,)]
    assert tx.fetchall() == []
    tx.execute(b"d")
    with pytest.raises(AssertionError, match=r"after 'd'.*no answer left"):
        tx.fetchone()
    assert [sql for sql, _ in tx.statements] == ["a", "b", "c", "c", "d"]


def test_a_time_beyond_the_calendar_is_its_end() -> None:
    endless = App()

    @endless.handler("t", timeout=1e15)
    def function(payload: Any, request: Request[Any]) -> int:
        return request.deadline.year

    assert run(endless, "t", 1).result == 9999
