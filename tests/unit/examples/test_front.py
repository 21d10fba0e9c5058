"""The shop over HTTP: what becomes of an order, in words of HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from consumer.gateway import create_app
from examples.shop.front import create_front
from feedback import Conflict, DeliveryFailed, QueueFull, Status, WaitTimeout
from tests.support.gateway import GatewayBench

ORDER = {"customer": "ann", "lines": [{"article": "book"}]}


def status(state: Any, code: str = "ok", **fields: Any) -> Status[Any]:
    return Status(
        id="web-1", type="shop.place_order", state=state, code=code, attempt=1, run=1,
        at=datetime(2026, 5, 1, tzinfo=UTC), **fields,
    )  # fmt: skip


@dataclass
class Answering:
    """A client that answers as it is told."""

    answer: Status[Any] | Exception
    called: list[tuple[str, Any, str]] = field(default_factory=list)

    async def call(self, type: str, payload: Any, *, timeout: float, request_id: str) -> Status:
        self.called.append((type, payload, request_id))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def sent(client: Answering, path: str = "/orders/1", order: Any = ORDER) -> httpx.Response:
    bench = GatewayBench()
    front = create_front(create_app(bench.settings, parts=bench.parts), FastAPI())
    front.state.client = client

    async def put() -> httpx.Response:
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.put(path, json=order)

    return asyncio.run(put())


@pytest.mark.parametrize(
    "answer, code, body",
    [
        (status("done", result={"order_id": 7}), 201, {"order_id": 7}),
        (status("rejected", "unknown_article", reason="x"), 422,
         {"code": "unknown_article", "reason": "x"}),
        (status("dead", "timeout"), 503, {"state": "dead", "code": "timeout"}),
        (status("cancelled", "cancelled"), 503, {"state": "cancelled", "code": "cancelled"}),
        (status("in_doubt", "worker_died"), 202, {"state": "unknown"}),
        (QueueFull("web-1", 5), 503, {"state": "unknown"}),
        (DeliveryFailed({"web-1": "timed out"}), 503, {"state": "unknown"}),
        (Conflict("web-1", status("done")), 409, {"code": "another_order"}),
        (WaitTimeout("web-1", 10, None), 202, {"state": "unknown"}),
    ],
)  # fmt: skip
def test_an_order_is_answered_by_its_end(
    answer: Status[Any] | Exception, code: int, body: Any
) -> None:
    client = Answering(answer)
    response = sent(client)

    assert (response.status_code, response.json()) == (code, body)
    ((type_, payload, request_id),) = client.called
    assert (type_, request_id, payload["customer"]) == ("shop.place_order", "web-1", "ann")
    where = "/oncepool/requests/web-1" if code in (202, 503) else None
    assert response.headers.get("Location") == where
    assert ("Retry-After" in response.headers) == (where is not None)


def test_what_is_no_order_is_not_sent() -> None:
    client = Answering(status("done"))

    assert sent(client, order={"customer": "ann", "lines": []}).status_code == 422
    assert sent(client, path="/orders/a%20b").status_code == 422
    assert client.called == []
