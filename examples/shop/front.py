"""The shop over HTTP: orders as its customers' browsers send them, and the gateway beside it.

    uvicorn --factory examples.shop.front:make_front

PUT /orders/{number}   places an order once, however often it is sent: 201 and what was placed, 202
                       while that is not known, 409 for another order under the number, 422 with the
                       reason where the shop refuses it, 503 where it was not placed, or perhaps not
                       sent: the same again, after a while, is safe
/oncepool              the gateway: statuses over HTTP, and pages for operators
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path
from fastapi.responses import JSONResponse

from consumer.config.loader import load_settings
from consumer.gateway import create_app, lifespan
from examples.shop.models import Order
from feedback import AsyncClient, Conflict, DeliveryFailed, QueueFull, Status, WaitTimeout

PLACE = "shop.place_order"
GATEWAY = "/oncepool"
PATIENCE = 10.0
"""Seconds that a browser waits for its order."""

Number = Annotated[str, Path(pattern="^[A-Za-z0-9-]{1,64}$")]


def make_front() -> FastAPI:
    """The front with the services that the environment names."""
    gateway = create_app(load_settings())

    @asynccontextmanager
    async def running(front: FastAPI) -> AsyncIterator[None]:
        async with lifespan(gateway), AsyncClient.from_env() as client:
            front.state.client = client
            yield

    return create_front(gateway, FastAPI(title="A small shop", lifespan=running))


def create_front(gateway: FastAPI, front: FastAPI) -> FastAPI:
    """Gives `front`, whose `state.client` is an AsyncClient, its ways; `gateway` is one of them."""

    @front.put("/orders/{number}", status_code=201)
    async def place_order(number: Number, order: Order) -> JSONResponse:
        request_id = (
            f"web-{number}"  # the browser's number, so that its second try is the same request
        )
        client: AsyncClient = front.state.client
        try:
            status = await client.call(
                PLACE, order.model_dump(mode="json"), timeout=PATIENCE, request_id=request_id
            )
        except Conflict:
            return JSONResponse({"code": "another_order"}, 409)
        except WaitTimeout:
            return _not_known(request_id)
        except (QueueFull, DeliveryFailed):  # which may have arrived all the same
            return _not_known(request_id, 503)
        return _answer(request_id, status)

    front.mount(GATEWAY, gateway)
    return front


def _answer(request_id: str, status: Status[Any]) -> JSONResponse:
    """What became of it, in words of HTTP."""
    if status.state == "done":
        return JSONResponse(status.result, 201)
    if status.state == "rejected":
        return JSONResponse({"code": status.code, "reason": status.reason}, 422)
    if status.state == "in_doubt":
        return _not_known(request_id)
    # Failed, dead, cancelled, superseded: nothing was ordered. Of what failed the same again is one
    # more try; of the others an operator decides.
    return JSONResponse({"state": status.state, "code": status.code}, 503, _headers(request_id))


def _not_known(request_id: str, code: int = 202) -> JSONResponse:
    return JSONResponse({"state": "unknown"}, code, _headers(request_id))


def _headers(request_id: str) -> dict[str, str]:
    return {"Location": f"{GATEWAY}/requests/{request_id}", "Retry-After": "5"}
