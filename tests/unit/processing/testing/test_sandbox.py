"""Producer and handlers together in memory: faults, time, and what comes by the clock."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from feedback import Client, ClientClosed, Conflict, Status, StoreUnavailable, WaitTimeout
from processing import App, Done, Message, RawMessage, Request, Retry, Tick, Unknown
from processing.testing import FakeCursor, KitError, Sandbox, kill_worker

app = App()
entered: list[str] = []
"""Requests whose handlers were entered, in their order."""
asked: list[tuple[str, datetime]] = []
"""Requests whose check was asked, and when."""


class Receipt(BaseModel):
    number: int


@app.handler("pay", retries=2)
def pay(payload: dict[str, Any], request: Request[Any], tx: Any) -> Receipt:
    entered.append(request.id)
    tx.execute("INSERT", (request.id,))
    if payload.get("kill", 0) >= len(entered):
        kill_worker()
    if payload.get("fail", 0) >= request.attempt:
        raise ValueError("boom")
    return Receipt(number=7)


@app.handler("once")
def once(payload: dict[str, Any], request: Request[Any]) -> int:
    entered.append(request.id)
    time.sleep(payload.get("takes", 0.0))  # real time, of which the sandbox's clock knows nothing
    if payload["fail"] >= len(entered):
        raise ValueError("boom")
    return 7


@app.handler("charge", effect="external")
def charge(payload: dict[str, Any]) -> str:
    if payload.get("kill"):
        kill_worker()
    return "charged"


def _asked(request: Request[Any]) -> Done | Unknown:
    asked.append((request.id, datetime.now(UTC)))
    if request.payload.get("kill"):
        kill_worker()
    times = [id_ for id_, _ in asked].count(request.id)
    return Unknown() if times <= request.payload["unknown"] else Done("found")


@app.handler("ask", effect="external", check=_asked)
def ask(payload: dict[str, Any]) -> str:
    raise TimeoutError("no answer")


@app.handler("later")
def later(payload: dict[str, Any]) -> None:
    raise Retry(after=1, counts=False)


@app.handler("at.once")
def at_once(payload: dict[str, Any]) -> None:
    raise Retry(after=0, counts=False)


@app.handler("ask.newest")
def ask_newest(payload: dict[str, Any], request: Request[Any]) -> None:
    request.follow_up("newest", {}, request_id="asked")


@app.handler("newest", coalesce=lambda payload: "x", window=5)
def newest(payload: dict[str, Any]) -> None: ...


@app.periodic("0 6 * * mon-fri", tz="Europe/Oslo")
@app.handler("report")
def report(tick: Tick) -> str:
    return f"{tick.at:%a %H:%M}"


@app.decoder("erp")
def erp(message: RawMessage) -> Message:
    return Message("erp-1", "pay", {})


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    entered.clear()
    asked.clear()
    with Sandbox(app, start=datetime(2026, 10, 23, 12, tzinfo=UTC)) as made:
        yield made


def states(sandbox: Sandbox) -> dict[str, str]:
    return {row["id"]: f"{row['state']}/{row['code']}" for row in sandbox.requests()}


def test_a_call_is_answered_with_what_its_handler_says(sandbox: Sandbox) -> None:
    status = sandbox.client.call(pay, {})
    result: Receipt = status.result
    assert result == Receipt(number=7)
    assert sandbox.client.call("pay", {}).result == {"number": 7}


def test_a_request_that_is_sent_again_runs_once(sandbox: Sandbox) -> None:
    for _ in range(3):
        sandbox.client.submit("pay", {}, request_id="p")
    assert sandbox.status("p").state == "done"  # type: ignore[union-attr]
    row = sandbox.request("p") or {}
    assert (entered, row["resends"]) == (["p"], 2)
    with pytest.raises(Conflict):
        sandbox.client.call("pay", {"other": 1}, request_id="p")
    assert [letter["reason"] for letter in sandbox.dead_letters] == ["conflict"]


def test_a_lost_message_is_sent_again_by_its_call(sandbox: Sandbox) -> None:
    sandbox.lose("pay")
    began = sandbox.clock.now()
    assert sandbox.client.call("pay", {}, timeout=60).state == "done"
    assert sandbox.clock.now() - began == timedelta(seconds=20)
    sandbox.lose()
    sandbox.client.submit("pay", {}, request_id="gone")
    with pytest.raises(WaitTimeout):
        sandbox.client.wait("gone", 60)
    assert "gone" not in states(sandbox)


def test_a_message_that_is_there_twice_is_answered(sandbox: Sandbox) -> None:
    sandbox.deliver_twice(pay)
    sandbox.client.submit("pay", {}, request_id="p")
    sandbox.run()
    assert entered == ["p"]
    assert (sandbox.request("p") or {})["resends"] == 1


@pytest.mark.parametrize(
    "kills, state", [(1, "done/ok"), (2, "dead/worker_died")], ids=["once", "twice"]
)
def test_a_worker_that_dies_in_a_handler(sandbox: Sandbox, kills: int, state: str) -> None:
    sandbox.client.submit("pay", {"kill": kills}, request_id="p")
    sandbox.run()
    assert states(sandbox) == {"p": state}
    assert entered == ["p", "p"]
    assert (sandbox.request("p") or {})["crashes"] == kills
    assert [line["code"] for line in sandbox.attempts] == ["worker_died"] * kills


@pytest.mark.parametrize("point, times", [("commit", 2), ("committed", 1)])
def test_a_worker_that_dies_about_its_commit(sandbox: Sandbox, point: Any, times: int) -> None:
    sandbox.kill_at(point, "p")
    status = sandbox.client.call("pay", {}, request_id="p")
    assert (status.state, len(entered)) == ("done", times)


def test_a_call_outside_whose_worker_dies_is_in_doubt(sandbox: Sandbox) -> None:
    assert sandbox.client.call("charge", {"kill": True}).state == "in_doubt"


@pytest.mark.parametrize("seconds", [-5, float("nan")])
def test_time_does_not_pass_backward(sandbox: Sandbox, seconds: float) -> None:
    began = sandbox.clock.now()
    with pytest.raises(ValueError, match="time passes forward"):
        sandbox.advance(seconds)
    assert sandbox.clock.now() == began


def test_a_check_is_asked_by_the_clock(sandbox: Sandbox) -> None:
    began = sandbox.clock.now()
    sandbox.client.submit("ask", {"unknown": 3}, request_id="a")
    sandbox.client.submit("ask", {"unknown": 99}, request_id="b")
    sandbox.client.submit("ask", {"kill": True}, request_id="c")
    sandbox.client.submit("charge", {"kill": True}, request_id="d")  # has none
    sandbox.run()
    assert {row["state"] for row in sandbox.requests()} == {"in_doubt"}
    assert sandbox.advance(29) == 0
    assert asked == []
    sandbox.advance(3000)
    times = {
        name: [(at - began).total_seconds() for id_, at in asked if id_ == name] for name in "abc"
    }
    doubled = [30.0, 60.0, 120.0, 240.0, 480.0, 960.0]
    assert times == {"a": doubled[:4], "b": [*doubled, 1920.0], "c": doubled}
    assert sandbox.client.wait("a", 1).result == "found"
    assert states(sandbox) == {
        "a": "done/ok", "b": "in_doubt/handler_error", "c": "in_doubt/handler_error",
        "d": "in_doubt/worker_died",
    }  # fmt: skip


def test_what_a_failed_run_did_is_undone() -> None:
    entered.clear()
    asked.clear()
    cursor = FakeCursor()
    with Sandbox(app, tx=cursor) as sandbox:
        sandbox.client.submit("pay", {"fail": 1}, request_id="p")
        sandbox.run()
        assert cursor.statements == []
        assert states(sandbox) == {"p": "waiting/handler_error"}
        assert sandbox.client.wait("p", 60).attempt == 2
    assert cursor.statements == [("INSERT", ("p",))]


def test_time_stands_still_until_it_is_moved(sandbox: Sandbox) -> None:
    began = sandbox.clock.now()
    sandbox.client.submit("pay", {}, request_id="p", delay=3600)
    assert sandbox.run() == 1
    assert sandbox.advance(3599) == 0
    assert states(sandbox) == {"p": "waiting/delayed"}
    assert sandbox.advance(1) == 1
    assert states(sandbox) == {"p": "done/ok"}
    assert sandbox.clock.now() == datetime.now(UTC) == began + timedelta(hours=1)


def test_a_wait_lets_time_pass_to_what_is_due_and_no_further(sandbox: Sandbox) -> None:
    began = sandbox.clock.now()
    sandbox.client.submit("pay", {}, request_id="p", delay=30)
    with pytest.raises(WaitTimeout):
        sandbox.client.wait("p", 10)
    assert sandbox.clock.now() - began == timedelta(seconds=10)
    assert sandbox.client.wait("p", 3600).state == "done"
    assert sandbox.clock.now() - began == timedelta(seconds=30)


def test_what_comes_by_the_clock_comes_when_it_is_moved(sandbox: Sandbox) -> None:
    sandbox.advance(4 * 86400 - 6.5 * 3600)  # from a Friday noon on, over a change of clocks
    ticks = [row["result"] for row in sandbox.requests() if row["type"] == "report"]
    assert ticks == ['"Mon 05:00"', '"Tue 05:00"']
    assert sandbox.client.wait("report@2026-10-27T05:00:00Z", 0.1).result == "Tue 05:00"


def test_a_tick_whose_id_is_taken_is_a_dead_letter(sandbox: Sandbox) -> None:
    sandbox.client.submit("pay", {}, request_id="report@2026-10-26T05:00:00Z")
    sandbox.advance(4 * 86400)
    assert [(one["reason"], one["request_id"]) for one in sandbox.dead_letters] == [
        ("conflict", "report@2026-10-26T05:00:00Z")
    ]
    assert states(sandbox)["report@2026-10-27T05:00:00Z"] == "done/ok"


@pytest.mark.parametrize("delay", [0.0, 1.0005])
def test_what_is_sent_later_is_newer_though_time_stands_still(delay: float) -> None:
    with Sandbox(app, start=datetime(2026, 1, 1, 0, 0, 0, 4567, UTC)) as sandbox:
        sandbox.client.submit("ask.newest", {}, request_id="a", delay=delay)
        sandbox.advance(delay)
        sandbox.client.submit("newest", {}, request_id="b")
        sandbox.advance(10)
        assert (sandbox.request("asked") or {})["superseded_by"] == "b"
        assert states(sandbox)["b"] == "done/ok"


def test_what_asks_for_itself_again_is_tried_when_it_says(sandbox: Sandbox) -> None:
    sandbox.client.submit("later", {}, request_id="l")
    with pytest.raises(WaitTimeout):
        sandbox.client.wait("l", 20)
    row = sandbox.request("l") or {}
    assert (row["attempt"], row["run"], row["code"]) == (1, 21, "retry")


def test_what_never_comes_to_an_end_is_told(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processing.testing.sandbox.MOST_RUNS", 50)
    sandbox.client.submit("at.once", {})
    with pytest.raises(KitError, match="50 runs"):
        sandbox.run()


def test_statuses_of_an_outage_are_lost_and_the_journal_has_the_answer(sandbox: Sandbox) -> None:
    with sandbox.redis_away():
        sandbox.client.submit("pay", {}, request_id="p")
        sandbox.run()
        with pytest.raises(StoreUnavailable):
            sandbox.client.status("p")
    assert sandbox.client.status("p") is None
    sandbox.client.submit("pay", {}, request_id="p")
    assert sandbox.client.wait("p", 1).state == "done"
    assert entered == ["p"]


def test_a_failure_that_could_not_be_read_before_it_is_sent_again_is_no_answer(
    sandbox: Sandbox,
) -> None:
    payload = {"fail": 1, "takes": 0.005}
    assert sandbox.client.call("once", payload, request_id="o", timeout=1).state == "failed"
    with sandbox.redis_away():
        sandbox.client.submit("once", payload, request_id="o")
        with pytest.raises(WaitTimeout):
            sandbox.client.wait("o", 1)
    with pytest.raises(WaitTimeout):  # what ran meanwhile has told nobody
        sandbox.client.wait("o", 1)
    with sandbox.redis_away():
        sandbox.client.submit("once", payload, request_id="o")
    assert sandbox.client.wait("o", 1).state == "done"


def test_a_failure_that_comes_after_a_send_whose_read_failed_is_its_answer(
    sandbox: Sandbox,
) -> None:
    assert sandbox.client.call("once", {"fail": 9}, request_id="o", timeout=1).state == "failed"
    with sandbox.redis_away():
        sandbox.client.submit("once", {"fail": 9}, request_id="o")
    status = sandbox.client.wait("o", 1)
    assert (status.state, status.run) == ("failed", 2)


def test_messages_of_others_are_read_by_their_decoder(sandbox: Sandbox) -> None:
    sandbox.send_raw(b"<order/>", topic="erp")
    sandbox.send_raw(b"{}", [("ce_type", b"pay")])
    sandbox.run()
    assert states(sandbox) == {"erp-1": "done/ok"}
    assert [letter["reason"] for letter in sandbox.dead_letters] == ["malformed"]


def test_real_time_goes_on_afterwards_and_the_app_can_be_started_again() -> None:
    with Sandbox(app) as sandbox:
        sandbox.clock.move(-86400)
    assert abs(datetime.now(UTC) - sandbox.clock.now()) < timedelta(minutes=1)
    with Sandbox(app) as sandbox:
        assert sandbox.client.call("pay", {}).state == "done"


def test_wrong_use_is_told() -> None:
    with pytest.raises(KitError, match="no time zone"):
        Sandbox(app, start=datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused
    with pytest.raises(KitError, match="none runs"):
        kill_worker()
    with pytest.raises(KitError, match="with block"):
        Sandbox(app).client.call("pay", {})


def test_a_handler_may_close_its_client_in_the_middle_of_a_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closes = App()
    ends: list[threading.ExceptHookArgs] = []

    @closes.handler("close")
    def close(_: Any) -> None:
        sandbox.client.close()
        for thread in threading.enumerate():
            if thread.name == "closing":
                thread.join(60)

    with pytest.MonkeyPatch.context() as patch, Sandbox(closes) as sandbox:
        patch.setattr(threading, "excepthook", ends.append)
        with suppress(ClientClosed):
            sandbox.client.call("close", {})
        with pytest.raises(ClientClosed):
            sandbox.client.submit("close", {})
    assert (ends, caplog.messages) == ([], [])


def test_its_client_has_the_real_ones_calls() -> None:
    with Sandbox(app) as sandbox:
        for name in ("submit", "status", "statuses", "wait", "call", "flush", "close", "results"):
            ours = inspect.signature(getattr(type(sandbox.client), name))
            assert ours == inspect.signature(getattr(Client, name))
        typed: Status[Receipt] = sandbox.client.call(pay, {})
        assert typed.result.number == 7
        sandbox.client.close()
