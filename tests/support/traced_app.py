"""An app whose handlers make spans of their own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
from opentelemetry import trace

from processing import App, Request

app = App()
tracer = trace.get_tracer("shop")


@app.handler("order")
def order(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
    """Asks for its bill; returns the id of that."""
    with tracer.start_as_current_span("reserve"):
        logging.getLogger("shop").info("reserved")
        return request.follow_up("bill", payload)


@app.handler("bill", effect="external")
async def bill(payload: dict[str, Any], request: Request[Any]) -> None:
    """Calls another service."""
    with tracer.start_as_current_span("charge"):
        await asyncio.sleep(0)


@app.batch_handler("count")
def count(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[int]:
    """How many came at once."""
    return [len(requests) for _ in requests]
