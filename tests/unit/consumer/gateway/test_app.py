"""The gateway's application: what becomes of a call that is given up, and what it does unasked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from opentelemetry import trace

from feedback.contract.states import State
from feedback.status.status import StatusWrite
from tests.support.gateway import GatewayBench, key

Http = httpx.AsyncClient
Headers = list[tuple[bytes, bytes]]


def test_a_client_that_goes_in_the_middle_of_its_body_is_no_error_here() -> None:
    bench = GatewayBench()
    told: list[Any] = [{"type": "http.request", "body": b"{", "more_body": True}]
    sent: list[Any] = []

    async def receive() -> Any:
        return told.pop() if told else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def scenario(_: Http) -> None:
        await bench.app(_post(9), receive, send)

    bench.run(scenario)
    assert sent[0]["status"] == 499
    assert bench.answers == [("/requests/{type}", "POST", 499)]


@pytest.mark.parametrize("cancelled", [False, True])
def test_who_goes_while_the_brokers_say_nothing_leaves_nothing_behind(cancelled: bool) -> None:
    bench = GatewayBench()
    told: list[Any] = [{"type": "http.request", "body": b"1"}]
    sent: list[Any] = []

    async def scenario(_: Http) -> None:
        gone = asyncio.Event()

        async def receive() -> Any:
            if not told:
                await gone.wait()
            return told.pop() if told else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        bench.producer.confirming.clear()
        call = asyncio.create_task(bench.app(_post(1), receive, send))
        client = bench.parts.client
        while not client._bells:
            await asyncio.sleep(0.01)
        if cancelled:
            call.cancel()
        gone.set()
        await asyncio.wait({call})
        assert call.cancelled() is cancelled  # whoever cancels it hears of it
        while client._bells or bench.parts.keys._held:
            await asyncio.sleep(0.01)

    bench.run(scenario)
    assert [one["status"] for one in sent[:1]] == ([] if cancelled else [499])


def test_nothing_is_measured_for_others_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Provider(trace.TracerProvider):
        def get_tracer(self, *given: Any, **more: Any) -> Any:
            asked.append(repr((given, more)))
            return trace.NoOpTracer()

    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        assert (await http.get("/livez")).status_code == 200

    bench.run(scenario)
    assert asked == []


def test_who_waits_for_the_brokers_alone_takes_nobody_s_wait() -> None:
    bench = GatewayBench(gateway_max_waits=1)

    async def scenario(http: Http) -> None:
        bench.producer.confirming.clear()
        first = asyncio.create_task(http.post("/requests/a.b", json=1))
        while not bench.producer.sent:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(
            http.post("/requests/a.b", json=2, headers={"Prefer": "wait=0"})
        )
        while len(bench.producer.sent) < 2:
            await asyncio.sleep(0.01)
        bench.producer.confirming.set()
        assert "Preference-Applied" not in (await first).headers
        assert (await second).headers["Preference-Applied"] == "wait=0"

    bench.run(scenario)


def _post(length: int) -> dict[str, Any]:
    """The scope of a request with a body of so many bytes."""
    headers = [(b"host", b"localhost"), (b"content-length", b"%d" % length)]
    return {"type": "http", "method": "POST", "path": "/requests/a.b", "query_string": b"",
            "raw_path": b"/requests/a.b", "headers": headers, "http_version": "1.1",
            "scheme": "http"}  # fmt: skip


def whole(scope: Any) -> dict[str, Any]:
    """As Starlette's mounts have it."""
    return scope | {"root_path": "/one pool/ä"}


def shortened(scope: Any) -> dict[str, Any]:
    """As Litestar's have it: `raw_path` alone tells where it is mounted."""
    return scope | {"path": scope["path"].removeprefix("/one pool/ä")}


def with_query(scope: Any) -> dict[str, Any]:
    """As some hosts have it: `raw_path` is all of the request's target."""
    return whole(scope) | {"raw_path": scope["raw_path"] + b"?a=/requests/b"}


def shortened_and_said(scope: Any) -> dict[str, Any]:
    """As ASGI had it in earlier days."""
    return whole(shortened(scope))


@pytest.mark.parametrize("mount", [whole, shortened, shortened_and_said, with_query])
def test_wherever_it_is_mounted_ids_and_links_are_the_same(mount: Any) -> None:
    bench = GatewayBench()

    async def host(scope: Any, receive: Any, send: Any) -> None:
        await bench.app(mount(scope), receive, send)

    async def play() -> None:
        transport = httpx.ASGITransport(host, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            root = "/one%20pool/%C3%A4"
            key = {"Idempotency-Key": "a/b%2F"}
            sent = await http.post(f"{root}/requests/a.b", json=1, headers=key)
            assert (sent.status_code, sent.headers["Location"]) == (
                202, f"{root}/requests/a%2Fb%252F",
            )  # fmt: skip
            assert (await http.get(sent.headers["Location"])).json()["id"] == "a/b%2F"
            assert (await http.get(f"{root}/livez")).status_code == 200
            assert (await http.get(f"{root}/nothing")).status_code == 404
        await bench.parts.close()

    asyncio.run(play())


def test_head_is_answered_beside_each_get() -> None:
    bench = GatewayBench()

    async def play(http: Http) -> None:
        bench.say("k", State.DONE)
        for path, status in (("/requests/k", 200), ("/livez", 200), ("/requests/nobody", 404)):
            got, head = await http.get(path), await http.head(path)
            assert (head.status_code, head.content) == (status, b"")
            assert head.headers["content-type"] == got.headers["content-type"]
            assert head.headers["content-length"] == str(len(got.content))
            of_get, of_head = bench.answers[-2:]
            assert of_head == (of_get[0], "HEAD", status)
            assert of_head[0]
        refused = await http.head("/requests/k/retry")
        assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")

    bench.run(play)


def test_a_method_that_is_not_allowed_hears_of_all_that_are() -> None:
    async def play(http: Http) -> None:
        for path, methods in (
            ("/requests/a.b", "GET, HEAD, POST"), ("/requests/k/cancel", "POST"),
            ("/livez", "GET, HEAD"), ("/openapi.json", "GET, HEAD"),
        ):  # fmt: skip
            refused = await http.delete(path)
            assert (refused.status_code, refused.headers["Allow"]) == (405, methods)
            assert refused.json()["type"].endswith("method_not_allowed")

    GatewayBench().run(play)


def test_a_wait_is_cut_and_in_whole_seconds() -> None:
    bench = GatewayBench(gateway_max_wait=1)

    async def play(http: Http) -> None:
        bench.say("k", State.DONE)
        for wait in ("0", "99999", "9" * 400):
            assert (await http.get(f"/requests/k?wait={wait}")).status_code == 200, wait
        for wait in ("1.5", "-1", "soon"):
            assert (await http.get(f"/requests/k?wait={wait}")).status_code == 400, wait

    bench.run(play)


@pytest.mark.parametrize(
    "odd",
    [
        {"fingerprint": "zz"}, {"fingerprint": "abc"}, {"attempt": 10**30},
        {"at": "0001-01-01T00:00:00+14:00"}, {"retry_at": "9999-12-31T23:59:59-14:00"},
    ],
)  # fmt: skip
def test_a_status_that_is_none_of_ours_costs_the_others_nothing(odd: dict[str, Any]) -> None:
    bench = GatewayBench()
    bench.say("a", State.RUNNING)
    status = {"v": "000013", "id": "b", "type": "a.b", "state": "running", "code": "ok",
              "attempt": 1, "at": "2026-01-01T00:00:00Z"}  # fmt: skip
    bench.store.write([StatusWrite("b", json.dumps(status | odd).encode(), 60)])

    async def scenario(http: Http) -> None:
        answer = await http.get("/requests", params={"id": ["a", "b"]})
        assert [one["state"] for one in answer.json()] == ["running", "unknown"]
        assert (await http.get("/requests/b")).status_code == 404

    bench.run(scenario)


@pytest.mark.parametrize(
    "version, headers",
    [
        ("1.1", [(b"transfer-encoding", b"chunked")]),
        ("1.1", [(b"content-length", b"0")]),
        ("1.1", []),
        ("2", []),
        ("3", []),
    ],
)
def test_a_body_that_no_header_tells_of_is_bounded(version: str, headers: Headers) -> None:
    """HTTP/2 needs no header for one: a gateway that is mounted elsewhere may be spoken to so."""
    answers, taken = _with_a_long_body("/requests/a.b", headers, version)
    assert answers[0]["status"] == 413
    assert taken == 11


@pytest.mark.parametrize("length", [b"0", b"100"])
@pytest.mark.parametrize("path", ["/requests/a.b", "/requests/r1/retry", "/ui/login"])
def test_two_headers_that_tell_of_a_body_are_refused(path: str, length: bytes) -> None:
    """As the one that counts here may not count for a proxy on the way."""
    both = [(b"content-length", length), (b"transfer-encoding", b"chunked")]
    answers, taken = _with_a_long_body(path, both)
    assert (answers[0]["status"], taken) == (400, 0)
    assert (b"connection", b"close") in answers[0]["headers"]


@pytest.mark.parametrize(
    "path",
    ["/requests/a.b", *(f"/requests/r1/{move}" for move in ("retry", "cancel", "resolve")),
     *(f"/dead-letters/7/{move}" for move in ("retry", "drop"))],
)  # fmt: skip
def test_nothing_is_read_of_the_body_of_who_has_no_key(path: str) -> None:
    chunked = [(b"transfer-encoding", b"chunked"), (b"content-type", b"application/json")]
    answers, taken = _with_a_long_body(path, chunked, gateway_keys={"shop": key("operate")})
    assert (answers[0]["status"], taken) == (401, 0)


def _with_a_long_body(
    path: str, headers: Headers, version: str = "1.1", **settings: Any
) -> tuple[list[Any], int]:
    """The answer to one of 20 parts of 100 bytes, which may have 1000; how many were taken."""
    bench = GatewayBench(max_payload=1000, **settings)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": version, "method": "POST",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "scheme": "http", "headers": headers, "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }  # fmt: skip
    answers: list[Any] = []
    taken: list[int] = []

    async def receive() -> Any:
        taken.append(1)
        return {"type": "http.request", "body": b"x" * 100, "more_body": len(taken) < 20}

    async def send(message: Any) -> None:
        answers.append(message)

    async def scenario(_: Any) -> None:
        await bench.app(scope, receive, send)

    bench.run(scenario)
    return answers, len(taken)
