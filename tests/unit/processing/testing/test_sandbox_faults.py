"""Faults that a test plans for its sandbox: where they strike, and what is said of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from feedback.status.status import Status, StatusWrite
from processing import App, Done, Message, NotDone, RawMessage, Request, Unknown
from processing.testing import KitError, Sandbox, kill_worker

app = App()
entered: list[str] = []
"""Requests whose handlers, or what else of the user's, were entered, in their order."""


@app.handler("pay")
def pay(payload: dict[str, Any], request: Request[Any]) -> str:
    entered.append(request.id)
    if payload.get("kill", 0) >= len(entered):
        kill_worker()
    return "paid"


def _found(request: Request[Any]) -> Done | NotDone | Unknown:
    said: dict[str, Done | NotDone | Unknown] = {
        "done": Done("found"), "not done": NotDone(), "unknown": Unknown()
    }  # fmt: skip
    return said[request.payload["check"]]


@app.handler("charge", effect="external", check=_found)
def charge(payload: dict[str, Any], request: Request[Any]) -> str:
    entered.append(request.id)
    return "charged"


@app.handler("pure", effect="none")
def pure(payload: dict[str, Any]) -> None: ...


def _dies(payload: dict[str, Any]) -> str:
    entered.append("fingerprint")
    kill_worker()


@app.handler("own", fingerprint=_dies)
def own(payload: dict[str, Any]) -> None: ...


@app.decoder("erp")
def erp(message: RawMessage) -> Message:
    entered.append("decoder")
    kill_worker()


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    entered.clear()
    with Sandbox(app) as made:
        yield made


def stands(sandbox: Sandbox, name: str) -> tuple[str, str]:
    row = sandbox.request(name) or {}
    return row["state"], row["code"]


@pytest.mark.parametrize(
    "check, end",
    [
        ("done", ("done", "ok")),
        ("not done", ("failed", "worker_died")),
        ("unknown", ("in_doubt", "worker_died")),
    ],
)
def test_a_worker_that_dies_before_the_end_of_its_call_is_written(
    sandbox: Sandbox, check: str, end: tuple[str, str]
) -> None:
    sandbox.kill_at("commit", charge)
    sandbox.client.submit("charge", {"check": check}, request_id="c")
    sandbox.run()
    assert (stands(sandbox, "c"), entered) == (end, ["c"])


def test_a_worker_that_dies_when_the_end_of_its_call_is_written(sandbox: Sandbox) -> None:
    sandbox.kill_at("committed", charge)
    status = sandbox.client.call("charge", {"check": "unknown"}, request_id="c")
    assert (status.state, status.result, entered) == ("done", "charged", ["c"])


def test_what_is_dead_meets_no_other_fault(sandbox: Sandbox) -> None:
    sandbox.kill_at("commit", "p")
    sandbox.client.submit("pay", {"kill": 1}, request_id="p")
    sandbox.run()
    assert (stands(sandbox, "p"), entered) == (("dead", "worker_died"), ["p", "p"])
    assert [line["code"] for line in sandbox.attempts] == ["worker_died"] * 2


def test_the_worker_dies_that_runs_the_handler(sandbox: Sandbox) -> None:
    other = App()
    other.handler("pay")(lambda payload: "paid")
    with Sandbox(other) as inner:
        sandbox.client.submit("pay", {"kill": 1}, request_id="p")
        sandbox.run()
        assert inner.client.call("pay", {}, request_id="q").state == "done"
        assert (inner.request("q") or {})["crashes"] == 0
    assert (sandbox.request("p") or {})["crashes"] == 1


def test_what_kills_each_worker_that_reads_it_comes_to_an_end(sandbox: Sandbox) -> None:
    sandbox.client.submit("own", {}, request_id="o")
    sandbox.send_raw(b"<order/>", topic="erp")
    sandbox.run()
    assert stands(sandbox, "o") == ("dead", "worker_died")
    assert entered == ["fingerprint"] * 2 + ["decoder"] * 2
    assert [letter["reason"] for letter in sandbox.dead_letters] == ["malformed"]


def test_an_answer_comes_twice_and_late(monkeypatch: pytest.MonkeyPatch) -> None:
    other = App()

    @other.handler("flaky", retries=1)
    def flaky(payload: Any, request: Request[Any]) -> str:
        if request.attempt == 1:
            raise ValueError("not yet")
        return "paid"

    with Sandbox(other) as inner:
        inner.answer_twice(flaky)
        told: list[str] = []
        write = inner.statuses.write

        def watched(writes: Sequence[StatusWrite]) -> None:
            told.extend(Status.decode(one.value).state for one in writes)
            write(writes)

        monkeypatch.setattr(inner.statuses, "write", watched)
        inner.client.submit("flaky", {}, request_id="f")
        inner.advance(60)
        assert [one for one in told if one != "accepted"] == [
            "waiting",
            "waiting",
            "done",
            "waiting",
        ]
        assert stands(inner, "f") == ("done", "ok"), "what comes late changes nothing"


def test_a_fault_that_cannot_be_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(KitError, match=r"no point 'comit'; did you mean 'commit'.*committed"):
        sandbox.kill_at("comit", "pay")  # type: ignore[arg-type]
    other = App()
    with pytest.raises(KitError, match="no handler of type 'pays'; did you mean 'pay'"):
        sandbox.lose(other.handler("pays")(lambda payload: None))


def _plan(sandbox: Sandbox) -> None:
    sandbox.lose("pya")
    sandbox.deliver_twice("order-17", times=2)
    sandbox.kill_at("commit", pure)  # writes no row
    sandbox.kill_at("committed")
    sandbox.client.submit("pure", {})
    sandbox.run()


UNSTRUCK = (
    "planned for this sandbox, and it never struck: "
    "lose('pya') (no message had that id, and there is no such type; did you mean 'pay'?); "
    "deliver_twice('order-17'), 2 times (no message had that id, and there is no such type); "
    "kill_at('commit', 'pure'); kill_at('committed')"
)


def test_faults_that_never_struck_are_told_at_the_end() -> None:
    sandbox = Sandbox(app)
    with pytest.raises(KitError) as told, sandbox:
        _plan(sandbox)
    assert str(told.value) == UNSTRUCK
    with Sandbox(app) as sandbox:
        _plan(sandbox)
        sandbox.clear_faults()


def _fail(sandbox: Sandbox) -> None:
    _plan(sandbox)
    raise ZeroDivisionError


def test_they_are_told_beside_what_a_test_fails_of() -> None:
    sandbox = Sandbox(app)
    with pytest.raises(ZeroDivisionError) as failed, sandbox:
        _fail(sandbox)
    assert failed.value.__notes__ == [UNSTRUCK]
