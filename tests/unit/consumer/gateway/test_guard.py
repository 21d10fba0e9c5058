"""What is refused by its headers alone, over ASGI with all services in memory."""

from __future__ import annotations

import httpx
import pytest

from tests.support.gateway import GatewayBench, bearer, key

Http = httpx.AsyncClient
JSON = ("Content-Type", "application/json")


@pytest.mark.parametrize(
    "name",
    [
        "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
        "X-Forwarded-Port", "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP",
    ],
)  # fmt: skip
def test_without_keys_nobody_may_call_through_a_proxy(name: str) -> None:
    async def scenario(http: Http) -> None:
        answer = await http.get("/requests/k", headers={name: "1.1 somewhere"})
        assert answer.status_code == 403
        assert "through a proxy" in answer.json()["detail"]

    GatewayBench().run(scenario)


def test_with_keys_proxies_are_as_good_as_any() -> None:
    async def scenario(http: Http) -> None:
        headers = bearer() | {"Via": "1.1 somewhere"}
        assert (await http.get("/requests/k", headers=headers)).status_code == 404

    GatewayBench(gateway_keys={"shop": key("read")}).run(scenario)


@pytest.mark.parametrize("path", ["/requests/a.b", "/requests/k/retry"])
@pytest.mark.parametrize(
    "headers, code",
    [
        ([JSON, ("Content-Encoding", "gzip")], "unsupported_encoding"),
        ([JSON, ("Content-Encoding", "identity, BR")], "unsupported_encoding"),
        ([JSON, ("Content-Encoding", "identity"), ("Content-Encoding", "gzip")],
         "unsupported_encoding"),
        ([JSON, ("Content-Type", "text/plain")], "invalid_request"),
    ],
)  # fmt: skip
def test_a_body_that_is_not_what_it_seems_is_a_problem(
    path: str, headers: list[tuple[str, str]], code: str
) -> None:
    bench = GatewayBench()

    async def scenario(http: Http) -> None:
        answer = await http.post(path, content=b"{}", headers=headers)
        assert answer.json()["type"] == f"urn:oncepool:problem:{code}"
        encoded = code == "unsupported_encoding"
        assert answer.status_code == (415 if encoded else 400)
        assert answer.headers.get("Accept-Encoding") == ("identity" if encoded else None)

    bench.run(scenario)
    assert not bench.producer.sent


def test_what_says_the_same_of_a_body_twice_is_taken() -> None:
    async def scenario(http: Http) -> None:
        headers = [JSON, JSON, ("Content-Encoding", "Identity")]
        answer = await http.post("/requests/a.b", content=b"{}", headers=headers)
        assert answer.status_code == 202

    GatewayBench().run(scenario)


@pytest.mark.parametrize("path", ["/requests?id=%ff", "/requests?id=k&id=%c3%28", "/requests/%ff"])
def test_what_is_no_text_is_not_read_as_another_one(path: str) -> None:
    async def scenario(http: Http) -> None:
        answer = await http.get(path)
        assert answer.status_code == 400
        assert "is not UTF-8" in answer.json()["detail"]
        assert (await http.get("/requests?id=%c3%a9&id=a%20+%26")).status_code == 200

    GatewayBench().run(scenario)
