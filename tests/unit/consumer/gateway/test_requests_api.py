"""Sending requests and reading statuses, over ASGI with all services in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from consumer.gateway import create_app
from feedback.contract.states import State
from tests.support import eventually
from tests.support.gateway import FakeJournal, GatewayBench, bearer, key

PROBLEM = "application/problem+json"
Http = httpx.AsyncClient


def named(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_request_is_answered_when_the_brokers_have_it() -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        bench.producer.confirming.clear()
        posting = asyncio.create_task(
            http.post("/requests/a.b", json={"x": 1}, headers=named('"k/1"'))
        )
        await until(lambda: bench.producer.sent)
        assert not posting.done()
        second = await http.post("/requests/a.b", json={"x": 1}, headers=named("k/1"))
        assert (second.status_code, second.headers["Retry-After"]) == (409, "1")
        bench.producer.confirming.set()
        first = await posting
        assert first.status_code == 202
        assert first.headers["Location"] == "/requests/k%2F1"
        assert first.headers["Retry-After"] == "1"
        assert "Preference-Applied" not in first.headers
        body = first.json()
        assert (body["v"], body["id"], body["state"]) == ("000001", "k/1", "accepted")
        assert next(iter(body)) == "v"
        seen = await http.get(first.headers["Location"])
        assert (seen.status_code, seen.json()["fingerprint"]) == (200, body["fingerprint"])

    bench.run(scenario)
    (sent,) = bench.producer.envelopes()
    assert (sent.id, sent.type, sent.payload) == ("k/1", "a.b", b'{"x":1}')
    assert ("/requests/{type}", "POST", 202) in bench.answers
    assert ("/requests/{id}", "GET", 200) in bench.answers


def test_a_repeat_is_the_same_request() -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        for _ in range(2):
            sent = await http.post("/requests/a.b", json={"x": 1}, headers=named("k"))
            assert sent.status_code == 202
        bench.say("k", State.DONE, result=b'{"paid":12345678901234567890123}')
        again = await http.post("/requests/a.b", content=b'{ "x": 1 }', headers=named("k"))
        assert (again.status_code, again.headers["Location"]) == (200, "/requests/k")
        assert b'"result":{"paid":12345678901234567890123}' in again.content
        other = await http.post("/requests/a.b", json={"x": 2}, headers=named("k"))
        assert other.status_code == 422
        assert other.headers["Content-Type"] == PROBLEM
        assert other.json()["id"] == "k"
        kind = await http.post("/requests/a.c", json={"x": 1}, headers=named("k"))
        assert kind.status_code == 422

    bench.run(scenario)
    assert len(bench.producer.sent) == 2


def test_the_journal_answers_where_redis_does_not_know() -> None:
    bench = GatewayBench()
    bench.journal.put("old", State.DONE, result={"paid": 5}, fingerprint="00" * 16)
    bench.journal.put("stale", State.DONE)
    bench.say("stale", State.RUNNING)

    async def scenario(http: Http) -> None:
        seen = await http.get("/requests/old")
        assert (seen.status_code, seen.json()["result"]) == (200, {"paid": 5})
        assert (await http.get("/requests/stale")).json()["state"] == "done"
        again = await http.post("/requests/a.b", json={}, headers=named("old"))
        assert again.status_code == 422
        assert (await http.get("/requests/new")).status_code == 404
        bench.store.available = False
        assert (await http.get("/requests/old")).status_code == 200
        lost = await http.get("/requests/new")
        assert (lost.status_code, lost.headers["Retry-After"]) == (503, "5")
        # Where nobody answers a request is sent all the same: it can't run twice.
        bench.journal.away = True
        sent = await http.post("/requests/a.b", json={}, headers=named("new"))
        assert sent.status_code == 202
        bench.store.available = True
        assert (await http.get("/requests/stale")).json()["state"] == "running"
        assert (await http.get("/requests/unheard")).status_code == 503

    bench.run(scenario)


def test_without_a_journal_redis_alone_is_asked() -> None:
    bench = GatewayBench(journal=False, operator=False)

    async def scenario(http: Http) -> None:
        assert (await http.get("/requests/new")).status_code == 404
        assert (await http.post("/requests/new/retry")).status_code == 501

    bench.run(scenario)


def test_a_wait_ends_with_a_settled_status() -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        prefer = named("k") | {"Prefer": "respond-async, wait=30"}
        posting = asyncio.create_task(http.post("/requests/a.b", json=1, headers=prefer))
        getting = asyncio.create_task(http.get("/requests/k?wait=30"))
        await until(lambda: bench.producer.sent)
        bench.say("k", State.RUNNING)
        bench.say("k", State.DONE)
        posted, got = await posting, await getting
        assert (posted.status_code, posted.json()["state"]) == (200, "done")
        assert posted.headers["Preference-Applied"] == "respond-async, wait=30"
        assert (got.status_code, got.json()["state"]) == (200, "done")
        assert "Retry-After" not in got.headers
        assert bench.parts.slots.taken == 0

    bench.run(scenario)


def test_a_wait_that_is_over_says_what_stands() -> None:
    bench = GatewayBench(gateway_max_wait=1)

    async def scenario(http: Http) -> None:
        prefer = named("k") | {"Prefer": "wait=500"}
        posted = await http.post("/requests/a.b", json=1, headers=prefer)
        assert (posted.status_code, posted.json()["state"]) == (202, "accepted")
        assert posted.headers["Preference-Applied"] == "wait=1"
        assert len(bench.producer.sent) == 1, "so short a silence says nothing"
        got = await http.get("/requests/k?wait=500")
        assert (got.status_code, got.headers["Retry-After"]) == (200, "1")
        assert (await http.get("/requests/nobody?wait=1")).status_code == 404
        bench.journal.put("lost", State.DONE, type="a.c")
        bench.journal.away = True  # until it has been sent
        posting = asyncio.create_task(
            http.post("/requests/a.c", json=1, headers=prefer | named("lost"))
        )
        await until(lambda: any(one.id == "lost" for one in bench.producer.envelopes()))
        bench.journal.away = False
        assert (await posting).json()["state"] == "done"

    bench.run(scenario)


def test_a_wait_finds_in_the_journal_what_redis_has_lost() -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        getting = asyncio.create_task(http.get("/requests/k?wait=30"))
        await until(lambda: bench.journal.asked)
        bench.journal.put("k", State.DONE)
        assert (await getting).json()["state"] == "done"

    bench.run(scenario)


def test_who_comes_when_too_many_wait_is_answered_at_once() -> None:
    bench = GatewayBench(gateway_max_waits=1)
    bench.say("k", State.RUNNING)

    async def scenario(http: Http) -> None:
        first = asyncio.create_task(http.get("/requests/k?wait=60"))
        await until(lambda: bench.parts.slots.taken)
        second = await http.get("/requests/k?wait=60")
        assert second.json()["state"] == "running"
        prefer = {"Prefer": "wait=60"}
        posted = await http.post("/requests/a.b", json=1, headers=prefer)
        assert posted.status_code == 202
        assert "Preference-Applied" not in posted.headers
        bench.say("k", State.DONE)
        assert (await first).json()["state"] == "done"

    bench.run(scenario)


def test_a_broker_that_does_not_confirm_is_503() -> None:
    bench = GatewayBench()
    bench.producer.error = "timed out"

    async def scenario(http: Http) -> None:
        for prefer in ({}, {"Prefer": "wait=1"}):
            failed = await http.post("/requests/a.b", json=1, headers=named("k") | prefer)
            assert (failed.status_code, failed.headers["Retry-After"]) == (503, "5")
            assert failed.json()["id"] == "k"
        bench.producer.error = None
        assert (await http.post("/requests/a.b", json=1, headers=named("k"))).status_code == 202

    bench.run(scenario)


def test_a_broker_that_says_nothing_is_503_in_time() -> None:
    bench = GatewayBench(send_timeout=0.1)
    bench.producer.confirming.clear()

    async def scenario(http: Http) -> None:
        failed = await http.post("/requests/a.b", json=1)
        assert failed.status_code == 503
        assert failed.json()["id"] == bench.producer.envelopes()[0].id
        bench.producer.room = 1
        full = await http.post("/requests/a.b", json=1)
        assert (full.status_code, full.json()["type"]) == (503, "urn:oncepool:problem:unavailable")

    bench.run(scenario)


def test_options_reach_the_message() -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        headers = {
            "ce-partitionkey": "customer-4", "ce-reference": "a-9", "ce-timeout": "2",
            "ce-notbefore": "2030-05-01T12:00:00Z", "ce-source": "/shop", "Content-Type": "text/x",
        }  # fmt: skip
        assert (await http.post("/requests/a.b", content=b"raw", headers=headers)).is_success
        past = {"ce-notbefore": "2001-05-01T12:00:00Z"}
        refused = await http.post("/requests/a.b", json=1, headers=past)
        assert refused.status_code == 400
        assert "past" in refused.json()["detail"]

    bench.run(scenario)
    (sent,) = bench.producer.envelopes()
    assert (sent.key, sent.payload, sent.options.reference) == (b"customer-4", b"raw", "a-9")
    assert (sent.options.timeout, sent.options.content_type) == (2.0, "text/x")
    assert sent.options.not_before is not None
    assert sent.headers["ce_source"] == "/shop"


@pytest.mark.parametrize(
    "path,options,status",
    [
        ("/requests/a.b", {"content": b"{"}, 400),
        ("/requests/a.b", {"json": 1, "headers": {"Idempotency-Key": '"open'}}, 400),
        ("/requests/a%01b", {"json": 1}, 400),
        ("/requests/a%ffb", {"json": 1}, 400),
        (f"/requests/{'x' * 201}", {"json": 1}, 400),
        ("/requests/", {"json": 1}, 404),
        ("/requests/a/b", {"json": 1}, 404),
        ("/requests", {"json": 1}, 405),
        ("/requests/a.b", {"content": b"x" * 2000}, 413),
        ("/requests/a.b", {"json": 1, "headers": {"X-Long": "x" * 70_000}}, 431),
        ("/requests/a.b", {"json": 1, "headers": {"Content-Type": "application/cloudevents"}}, 415),
        ("/requests/a.b", {"data": {"n": 1}}, 415),
        ("/requests/a.b", {"files": {"n": b"1"}}, 415),
    ],
)
def test_what_can_not_be_taken_is_a_problem(
    path: str, options: dict[str, Any], status: int
) -> None:
    bench = GatewayBench(max_payload=1000)

    async def scenario(http: Http) -> None:
        answer = await http.post(path, **options)
        assert answer.status_code == status
        assert answer.headers["Content-Type"] == PROBLEM
        assert answer.json()["status"] == status
        assert answer.headers["X-Content-Type-Options"] == "nosniff"

    bench.run(scenario)
    assert bench.producer.sent == []


@pytest.mark.parametrize("path", ["a.b", "order-17/resolve"])
def test_who_calls_json_a_form_is_told_what_to_say(path: str) -> None:
    async def scenario(http: Http) -> None:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        refused = await http.post(f"/requests/{path}", content=b'{"as": "done"}', headers=form)
        assert "curl -H 'content-type: application/json'" in refused.json()["detail"]

    GatewayBench().run(scenario)


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "0"}])
def test_a_body_without_a_length_is_bounded_too(headers: dict[str, str]) -> None:
    bench = GatewayBench(max_payload=1000, gateway_client_timeout=0.5)

    async def long() -> Any:
        for _ in range(11):
            yield b"x" * 100

    async def never() -> Any:
        yield b"{"
        await asyncio.sleep(30)

    async def scenario(http: Http) -> None:
        for body, status in ((long(), 413), (never(), 408)):
            refused = await http.post("/requests/a.b", content=body, headers=headers)
            assert refused.status_code == status

    bench.run(scenario)


def test_a_key_may_be_required() -> None:
    bench = GatewayBench(gateway_require_key=True)

    async def scenario(http: Http) -> None:
        refused = await http.post("/requests/a.b", json=1)
        assert (refused.status_code, refused.json()["type"]) == (
            400, "urn:oncepool:problem:key_required",
        )  # fmt: skip
        assert (await http.post("/requests/a.b", json=1, headers=named("k"))).status_code == 202

    bench.run(scenario)


def test_many_statuses_at_once() -> None:
    bench = GatewayBench()
    bench.say("a", State.RUNNING)
    bench.journal.put("b/c", State.DONE)

    async def scenario(http: Http) -> None:
        answer = await http.get("/requests", params={"id": ["a", "zz", "b/c"]})
        assert [one["state"] for one in answer.json()] == ["running", "unknown", "done"]
        assert answer.json()[1] == {"id": "zz", "state": "unknown"}
        for params in ({}, {"id": [""]}, {"id": ["x"] * 501}, {"id": ["a\0"]}):
            assert (await http.get("/requests", params=params)).status_code == 400

    bench.run(scenario)
    assert bench.journal.asked == [["a", "zz", "b/c"]]


def test_keys_roles_and_types() -> None:
    token = "another-key-of-forty-characters-for-test"
    keys = {"shop": key("send", types=["a.*"]), "eye": key("read", types=["a.*"], token=token)}
    bench = GatewayBench(gateway_keys=keys)
    bench.say("foreign", State.DONE, type="b.c")

    async def scenario(http: Http) -> None:
        none = await http.post("/requests/a.b", json=1)
        assert (none.status_code, none.headers["WWW-Authenticate"]) == (
            401, 'Bearer realm="oncepool"',
        )  # fmt: skip
        http.headers.update(bearer())
        assert (await http.post("/requests/a.b", json=1, headers=named("k"))).status_code == 202
        assert (await http.post("/requests/b.c", json=1)).status_code == 403
        assert (await http.get("/requests/k")).status_code == 403
        http.headers.update(bearer(token))
        assert (await http.post("/requests/a.b", json=1)).status_code == 403
        assert (await http.get("/requests/k")).status_code == 200
        assert (await http.get("/requests/foreign")).status_code == 404
        listed = await http.get("/requests?id=foreign")
        assert listed.json() == [{"id": "foreign", "state": "unknown"}]

    # With keys it does not matter where it is called from, and as what.
    bench.run(scenario, client=("10.0.0.9", 5), base_url="http://gateway.example")


@pytest.mark.parametrize(
    "client,headers,allowed",
    [
        ("127.0.0.1", {}, True),
        ("::1", {"Host": "[::1]:8080"}, True),
        ("10.0.0.9", {}, False),
        ("127.0.0.1", {"Host": "evil.example"}, False),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.9"}, False),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.9"}, False),
        ("127.0.0.1", {"Origin": "http://evil.example"}, False),
        ("127.0.0.1", {"Origin": "null"}, False),
        ("127.0.0.1", {"Origin": "http://localhost"}, True),
        ("127.0.0.1", {"Sec-Fetch-Site": "cross-site"}, False),
        ("127.0.0.1", {"Sec-Fetch-Site": "same-origin"}, True),
    ],
)
def test_without_keys_nobody_else_may_call(
    client: str, headers: dict[str, str], allowed: bool
) -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        answer = await http.post("/requests/a.b", json=1, headers=headers)
        assert answer.status_code == (202 if allowed else 403)

    bench.run(scenario, client=(client, 5000))


def test_a_page_of_another_site_may_not_send_with_a_key_either() -> None:
    bench = GatewayBench(gateway_keys={"shop": key("send")})

    async def scenario(http: Http) -> None:
        headers = bearer() | {"Origin": "https://evil.example"}
        assert (await http.post("/requests/a.b", json=1, headers=headers)).status_code == 403

    bench.run(scenario)


def test_it_can_be_mounted() -> None:
    bench = GatewayBench()
    outer = FastAPI()
    outer.mount("/oncepool", create_app(bench.settings, parts=bench.parts))

    async def scenario(_: Http) -> None:
        transport = httpx.ASGITransport(outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            sent = await http.post("/oncepool/requests/a.b", json=1, headers=named("k/1"))
            assert (sent.status_code, sent.headers["Location"]) == (202, "/oncepool/requests/k%2F1")
            assert (await http.get(sent.headers["Location"])).status_code == 200

    bench.run(scenario)


def test_readiness_is_that_of_what_is_needed() -> None:
    bench = GatewayBench(gateway_keys={"eye": key("read")})
    bench.away = {"redis"}
    ready = GatewayBench()
    ready.away = {"kafka"}

    async def scenario(http: Http) -> None:
        assert (await http.get("/livez")).text == "ok\n"
        assert (await http.get("/readyz")).status_code == 200
        told = (await http.get("/readyz?verbose", headers=bearer())).json()
        assert told["checks"][1] == {
            "name": "redis", "ok": False, "needed": False, "detail": "redis is away",
        }  # fmt: skip
        hidden = (await http.get("/readyz?verbose")).json()
        assert hidden["checks"][1]["detail"] == ""

    async def not_ready(http: Http) -> None:
        assert (await http.get("/readyz")).status_code == 503

    bench.run(scenario)
    ready.run(not_ready)


def test_what_nobody_foresaw_is_a_problem_without_details() -> None:
    bench = GatewayBench()

    class Broken(FakeJournal):
        async def read(self, ids: Any) -> Any:
            raise RuntimeError("secret")

    bench.parts.statuses._journal = Broken()

    async def scenario(http: Http) -> None:
        failed = await http.get("/requests/k")
        assert (failed.status_code, failed.headers["Content-Type"]) == (500, PROBLEM)
        assert "secret" not in failed.text

    bench.run(scenario)
    assert ("/requests/{id}", "GET", 500) in bench.answers


def test_waits_leave_nothing_behind_when_clients_go() -> None:
    bench = GatewayBench()
    bench.say("k", State.RUNNING)

    async def scenario(http: Http) -> None:
        del http
        gone = asyncio.Event()
        answers: list[Any] = []
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "path": "/requests/k", "raw_path": b"/requests/k", "query_string": b"wait=60",
            "root_path": "", "scheme": "http", "headers": [], "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }  # fmt: skip

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            answers.append(message)

        call = asyncio.create_task(bench.app(scope, receive, send))
        await until(lambda: bench.parts.slots.taken)
        gone.set()
        await call
        assert bench.parts.slots.taken == 0
        assert eventually(lambda: not bench.parts.client._waits._watches)

    bench.run(scenario)
