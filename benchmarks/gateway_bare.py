"""What a good engineer writes in an hour in place of the gateway, for benchmarks/gateway.py.

FastAPI, a confluent-kafka producer, Redis: a POST is answered with 202 once the brokers have the
message, a GET with what stands under the status' key. No check of key, payload or options, no look
whether the id is known, no status of its own, no bounds. Started by the benchmark.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import redis.asyncio
import uvicorn
from confluent_kafka import Producer
from fastapi import FastAPI, Request, Response


def app_of(kafka: str, url: str, topic: str, prefix: str) -> FastAPI:
    """The application."""
    app = FastAPI()
    store = redis.asyncio.Redis.from_url(url)
    producer = Producer(
        {"bootstrap.servers": kafka, "linger.ms": 1, "acks": "all", "enable.idempotence": True}
    )

    def poll() -> None:
        while True:
            producer.poll(0.1)

    threading.Thread(target=poll, daemon=True).start()

    @app.post("/requests/{kind}")
    async def send(kind: str, request: Request) -> Response:
        key, body = request.headers["idempotency-key"], await request.body()
        loop = asyncio.get_running_loop()
        safe: asyncio.Future[Any] = loop.create_future()

        def confirmed(error: Any, message: Any) -> None:  # noqa: ARG001 - as librdkafka calls it
            loop.call_soon_threadsafe(safe.set_result, error)

        headers: list[tuple[str, str | bytes | None]] = [("ce_id", key), ("ce_type", kind)]
        producer.produce(topic, body, key, headers=headers, on_delivery=confirmed)
        return Response(status_code=503 if await safe else 202)

    @app.get("/requests/{id}")
    async def status(id: str) -> Response:
        found = await store.get(f"{prefix}:status:{id}")
        return Response(found, 200 if found else 404, media_type="application/json")

    return app


def main() -> None:
    """Until SIGTERM: kafka, redis, topic (and prefix), port."""
    kafka, url, topic, port = sys.argv[1:5]
    app = app_of(kafka, url, topic, topic)
    # As the gateway: h11 and asyncio's own loop, no line for each call.
    uvicorn.run(
        app, port=int(port), loop="asyncio", http="h11", log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()
