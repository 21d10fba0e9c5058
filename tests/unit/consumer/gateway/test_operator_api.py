"""What operators do over HTTP, with the journal in memory."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from feedback.contract.states import State
from feedback.operations.dead_letters import DeadLetterRef
from feedback.operations.request_actions import By
from tests.support.gateway import FakeJournal, GatewayBench, bearer, key

Http = httpx.AsyncClient
WHO = By("gateway:local")
MESSAGE = {"kind": "message", "id": 3, "request_id": None, "type": "a.b", "payload": b"{",
           "headers": [], "fingerprint": b"\x01\x02", "reason": "malformed"}  # fmt: skip
REQUEST = {"kind": "request", "id": "r1", "request_id": "r1", "type": "b.c", "payload": b"\xff"}


def test_moves_name_who_and_why() -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        moved = await http.post("/requests/r1/retry", json={"why": "card was blocked"})
        assert (moved.status_code, moved.json()["state"]) == (200, "waiting")
        await http.post("/requests/r%2F1/cancel")
        await http.post("/requests/r1/cancel", json={"wait": 5})
        await http.post("/requests/r1/resolve", json={"as": "done", "result": {"n": 10**30}})
        await http.post("/requests/r1/resolve", json={"as": "failed", "run": 3})

    bench.run(scenario)
    assert bench.operator.asked == [
        ("retry", "r1", By("gateway:local", "card was blocked")),
        ("cancel", "r/1", WHO, 20.0),
        ("cancel", "r1", WHO, 5.0),
        ("resolve", "r1", WHO, "done", b'{"n":%d}' % 10**30, None),
        ("resolve", "r1", WHO, "failed", None, 3),
    ]


@pytest.mark.parametrize(
    "state,late,status,code",
    [
        ("done", False, 409, "refused"),
        (None, False, 404, "unknown"),
        ("running", True, 504, "no_answer"),
    ],
)
def test_a_refusal_says_why(state: str | None, late: bool, status: int, code: str) -> None:
    bench = GatewayBench()
    bench.operator.refuse(state, "is so and so", late=late)

    async def scenario(http: Http) -> None:
        refused = await http.post("/requests/r1/cancel")
        body = refused.json()
        assert (refused.status_code, body["type"]) == (status, f"urn:oncepool:problem:{code}")
        assert "is so and so" in body["detail"]
        assert body.get("state") == state

    bench.run(scenario)


@pytest.mark.parametrize(
    "path,body",
    [
        ("/requests/r1/resolve", None),
        ("/requests/r1/resolve", {"as": "perhaps"}),
        ("/requests/r1/resolve", {"as": "failed", "run": "3"}),
        ("/requests/r1/resolve", {"as": "failed", "run": -1}),
        ("/requests/r1/resolve", {"as": "failed", "result": 1}),
        ("/requests/r1/resolve", {"as": "done", "result": "refused"}),
        ("/requests/r1/retry", {"reason": "x"}),
        ("/requests/r1/retry", {"why": "a\0"}),
        ("/requests/r1/retry", [1]),
        ("/requests/r1/cancel", {"wait": -1}),
        ("/requests/r1/cancel", {"wait": 1e9}),
        ("/dead-letters/3/retry", {"id": "a\n"}),
        ("/dead-letters/r1/retry", {"id": "new"}),
    ],
)
def test_what_can_not_be_read_moves_nothing(path: str, body: Any) -> None:
    bench = GatewayBench()
    bench.operator.letters = [MESSAGE, REQUEST]

    async def scenario(http: Http) -> None:
        refused = await http.post(path, json=body)
        assert refused.status_code == 400, refused.text

    bench.run(scenario)
    assert bench.operator.asked == []


def test_operators_need_the_role_and_the_type() -> None:
    other = "another-key-of-forty-characters-for-test"
    keys = {"shop": key("send", "read"), "ops": key("operate", types=["a.*"], token=other)}
    bench = GatewayBench(gateway_keys=keys)
    bench.operator.letters = [MESSAGE, REQUEST]
    bench.journal.put("mine", State.DEAD)
    bench.journal.put("foreign", State.DEAD, type="b.c")
    # Redis says of this id what became of another one, which left no row.
    bench.say("shared", State.DONE, type="a.b")
    bench.operator.types["shared"] = "b.c"
    event = b'{"specversion": "1.0", "type": "b.c", "data": 1}'
    headers = [["ce_type", "YS5i"], ["content-type", "YXBwbGljYXRpb24vY2xvdWRldmVudHMranNvbg=="]]
    body = {**MESSAGE, "id": 5, "headers": headers, "payload": event}
    bench.operator.letters.append(body)

    async def scenario(http: Http) -> None:
        for method, path in (("POST", "/requests/mine/retry"), ("GET", "/dead-letters"),
                             ("POST", "/dead-letters/3/drop")):  # fmt: skip
            assert (await http.request(method, path, headers=bearer())).status_code == 403
        http.headers.update(bearer(other))
        assert (await http.post("/requests/mine/retry")).status_code == 200
        assert (await http.post("/requests/foreign/retry")).status_code == 404
        assert (await http.post("/requests/shared/retry")).status_code == 404
        for move in ("retry", "drop"):
            moved = await http.post(f"/dead-letters/5/{move}")
            assert moved.status_code == 404, "it would run as the type in its body"
        assert (await http.post("/requests/nobody/retry")).status_code == 404
        listed = (await http.get("/dead-letters")).json()
        assert [one["id"] for one in listed] == [3]
        assert (await http.post("/dead-letters/r1/retry")).status_code == 404
        forbidden = await http.post("/dead-letters/3/retry", json={"id": "n", "type": "b.c"})
        assert forbidden.status_code == 403

    bench.run(scenario)
    assert bench.operator.asked[0] == ("retry", "mine", By("gateway:ops"))


def test_dead_letters_are_listed_shown_retried_and_dropped() -> None:
    bench = GatewayBench()
    bench.operator.letters = [MESSAGE, REQUEST]

    async def scenario(http: Http) -> None:
        params = {"type": "a.*", "since": "2026-05-01T12:00:00Z", "limit": 7, "kind": "message"}
        listed = (await http.get("/dead-letters", params=params)).json()
        assert [one["payload"] for one in listed] == ["{", "/w=="]
        assert listed[0]["fingerprint"] == "0102"
        assert (await http.get("/dead-letters/3")).json()["reason"] == "malformed"
        gone = await http.post("/dead-letters/4/retry")
        assert gone.status_code == 404
        assert gone.json()["detail"].startswith("no dead letter has this number or id")
        await http.post("/dead-letters/3/retry", json={"id": "new", "why": "mended"})
        await http.post("/dead-letters/r1/retry")
        await http.post("/dead-letters/3/drop")
        for wrong in (
            {"since": "2026-05-01T12:00:00"},
            {"limit": 0},
            {"kind": "x"},
            {"type": "\0"},
        ):
            assert (await http.get("/dead-letters", params=wrong)).status_code == 400

    bench.run(scenario)
    listed, *moved = bench.operator.asked
    assert listed[1]["kind"] == "message"
    assert listed[2] == 7
    assert moved == [
        ("retry_dead", DeadLetterRef("message", "3"), By("gateway:local", "mended"), "new", None),
        ("retry_dead", DeadLetterRef("request", "r1"), WHO, None, None),
        ("drop_dead", DeadLetterRef("message", "3"), WHO),
    ]


def test_a_name_of_two_needs_a_kind() -> None:
    bench = GatewayBench()
    bench.operator.letters = [MESSAGE, {**REQUEST, "id": "3"}]

    async def scenario(http: Http) -> None:
        assert (await http.post("/dead-letters/3/drop")).status_code == 409
        assert (await http.post("/dead-letters/3/drop?kind=request")).status_code == 200

    bench.run(scenario)
    assert bench.operator.asked == [("drop_dead", DeadLetterRef("request", "3"), WHO)]


@pytest.mark.parametrize("result", ['"\\ud800"', "NaN", "[1e999]"])
def test_a_result_that_is_no_json_settles_nothing(result: str) -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        body = f'{{"as": "done", "result": {result}}}'
        headers = {"content-type": "application/json"}
        answer = await http.post("/requests/r1/resolve", content=body, headers=headers)
        assert (answer.status_code, "the result" in answer.json()["detail"]) == (400, True)

    bench.run(scenario)
    assert bench.operator.asked == []


@pytest.mark.parametrize("move", ["retry", "cancel", "resolve"])
def test_a_request_that_the_outbox_alone_knows_is_refused_and_not_unknown(move: str) -> None:
    keys = {"ops": key("operate", types=["a.*"]), "all": key("operate", token="a" * 40)}
    bench = GatewayBench(gateway_keys=keys)
    outbox = FakeJournal()
    bench.parts.statuses._outbox = outbox
    outbox.put("k", State.ACCEPTED, code="unsent")
    outbox.put("other", State.ACCEPTED, code="unsent", type="c.d")
    bench.operator.refuse(None, "unknown to the journal")

    async def scenario(http: Http) -> None:
        async def moved(id: str, token: dict[str, str]) -> httpx.Response:
            body = {"as": "done"} if move == "resolve" else {}
            return await http.post(f"/requests/{id}/{move}", json=body, headers=token)

        for token in (bearer(), bearer("a" * 40)):
            answer = await moved("k", token)
            assert (answer.status_code, answer.json().get("state")) == (409, "accepted"), (
                answer.text
            )
            assert "is in the outbox, and a relay has not sent it" in answer.json()["detail"]
            assert (await moved("nobody", token)).status_code == 404
        assert (await moved("other", bearer())).status_code == 404
        outbox.away = True
        assert (await moved("k", bearer("a" * 40))).status_code == 503

    bench.run(scenario)
