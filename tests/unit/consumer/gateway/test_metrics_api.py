"""What a gateway shows of its answers, and to whom."""

from __future__ import annotations

import pytest
from httpx import AsyncClient as Http

from consumer.gateway import parts
from consumer.gateway.events import EventsTold
from feedback.metrics.names import ShownBy
from tests.support.gateway import GatewayBench, bearer, key
from tests.support.metrics import listed
from tests.support.promql import kinds_of, series_of


def test_answers_are_shown_by_route_method_and_status() -> None:
    async def scenario(http: Http) -> None:
        await http.post("/requests/a.b", json={}, headers={"Idempotency-Key": "one"})
        await http.get("/requests/no-such-one")
        await http.get("/requests/nor-this-one")
        await http.get("/nowhere")
        answer = await http.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert kinds_of(answer.text) == listed(ShownBy.GATEWAY)
        found = {
            (one.labels["route"], one.labels["method"], one.labels["status"]): one.value
            for one in series_of(answer.text)
            if one.name == "oncepool_gateway_requests_total"
        }
        assert found == {
            ("/requests/{type}", "POST", "202"): 1, ("/requests/{id}", "GET", "404"): 2,
            ("none", "GET", "404"): 1,
        }  # fmt: skip

    GatewayBench().run(scenario)


@pytest.mark.parametrize("role,status", [("read", 200), ("send", 403), ("operate", 403)])
def test_it_takes_the_role_read(role: str, status: int) -> None:
    async def scenario(http: Http) -> None:
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers=bearer())).status_code == status

    GatewayBench(gateway_keys={"eye": key(role)}).run(scenario)


def test_without_the_package_nothing_is_measured_and_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "available", lambda: False)

    async def scenario(http: Http) -> None:
        answer = await http.get("/metrics")
        assert (answer.status_code, answer.json()["title"] != "") == (501, True)
        assert "oncepool[metrics]" in answer.json()["detail"]

    GatewayBench().run(scenario)


def test_who_listens_besides_hears_the_same() -> None:
    class Ear:
        def __init__(self) -> None:
            self.heard: list[tuple[str, str, int, float]] = []

        def answered(self, route: str, method: str, status: int, seconds: float) -> None:
            self.heard.append((route, method, status, seconds))

    one, other = Ear(), Ear()
    EventsTold(one, other).answered("/livez", "GET", 200, 0.1)
    assert one.heard == other.heard == [("/livez", "GET", 200, 0.1)]
