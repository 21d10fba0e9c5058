"""A maintenance process as the main process has it: its channel and what came over it."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import orjson
import psycopg
import redis

from feedback.contract.record import Record
from feedback.status.redis_store import RedisStatusStore
from processing.ipc.channel import ChannelClosed
from processing.ipc.child import Child
from processing.ipc.frames import Frame, MaintenanceReady, Stop, ToMaintenance
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.waiting import eventually

LOG = {"log_format": "json", "level": "info"}
Kind = TypeVar("Kind")


class MaintenanceProcess:
    """Starts ``python -m processing.maintenance`` and keeps every frame that it sends."""

    def __init__(self, settings: MaintenanceSettings) -> None:
        self.child = Child("processing.maintenance", asdict(settings))
        self.frames: list[Frame] = []

    def send(self, frame: ToMaintenance) -> None:
        self.child.channel.send(frame)
        while self.child.channel.backlog:
            self.child.channel.flush()

    def received(self, kind: type[Kind]) -> list[Kind]:
        """The frames of that kind that have come so far."""
        with contextlib.suppress(ChannelClosed):
            self.frames += self.child.channel.receive()
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def wait_for(self, kind: type[Kind], count: int = 1, timeout: float = 90.0) -> Kind:
        """The frame number `count` of that kind, as soon as it is there."""
        eventually(
            lambda: len(self.received(kind)) >= count,
            timeout,
            lambda: f"no {kind.__name__} among {self.frames}",
        )
        return self.received(kind)[count - 1]

    def ready(self) -> MaintenanceReady:
        return self.wait_for(MaintenanceReady)

    def get(self, port: int, path: str) -> tuple[int, Any]:
        """Status and JSON of a health endpoint."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", path, headers={"accept": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stop(self, timeout: float = 60.0) -> int | None:
        """Says stop and returns the exit code."""
        self.send(Stop())
        assert self.child.wait(timeout), "the maintenance process does not end"
        return self.child._process.returncode

    def close(self) -> None:
        if not self.child.ended():
            self.child.signal(signal.SIGKILL)
            self.child.wait(60)
        self.child.close()


StartMaintenance = Callable[..., MaintenanceProcess]


def registration(stack: Stack, prefix: str) -> dict[str, object] | None:
    with redis.Redis.from_url(stack.redis) as client:
        value = client.get(f"{prefix}:instance:here-1")
    return None if value is None else orjson.loads(value)


def record(number: int, *, headers: list[tuple[str, bytes | None]] | None = None) -> Record:
    if headers is None:
        headers = [("ce_id", f"r-{number}".encode()), ("ce_type", b"payment.create")]
    return ("requests", 0, number, 1_700_000_000_000, b"k", b"{}", headers, "payment.create", None)


def counters(stack: Stack, schema: str) -> dict[tuple[str, str, str], int]:
    with psycopg.connect(stack.database) as database:
        rows = database.execute(
            f"SELECT type, state, code, sum(n)::int FROM {schema}.counters GROUP BY 1, 2, 3"
        ).fetchall()
    return {(name, state, code): n for name, state, code, n in rows}


def state_of(statuses: RedisStatusStore, name: str) -> tuple[str, str] | None:
    [status] = statuses.read([name])
    return None if status is None else (str(status.state), status.code)
