"""Calls a second of the HTTP gateway, beside a bare FastAPI application that does the least.

    scripts/bench gateway [--quick] [--rounds N] [--requests N] [--connections N]

On loopback, so many connections, each with one call at a time. POST: a new request with an
Idempotency-Key, 202 once the brokers have it. GET: the status of a request that is done, which
stands in Redis. Sides: the bare application (benchmarks/gateway_bare.py), the gateway without a
journal, and with one, which it asks of each new key. No consumer runs.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import psutil

from benchmarks.asking import Times, times_of
from benchmarks.cpu import used
from benchmarks.full_path_runs import ROOT, running
from benchmarks.http_load import call, load, until_it_answers
from benchmarks.load import PAYLOAD, create_topic
from benchmarks.machine import facts
from benchmarks.options import options_of, parser_of, rounds_of
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.journal.migrations import migrate
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from stack.places import free_port

ROUNDS = 5
REQUESTS = 10_000
CONNECTIONS = 16
KIND = "bench.echo"
BARE, PLAIN, JOURNAL = "bare application", "gateway", "gateway with a journal"
SIDES = (BARE, PLAIN, JOURNAL)
POST, GET = "POST", "GET"
PARTS = ("server", "caller", "broker", "Valkey", "PostgreSQL", "all")
KEPT = 600
"""Seconds for which a status stands."""


@dataclass(frozen=True, slots=True)
class CallsRound:
    """What one side did in one round, of one method."""

    rate: float
    """Calls a second."""
    times: Times
    cpu: Mapping[str, float]
    """Part -> microseconds for each call."""


@dataclass(frozen=True, slots=True)
class HttpServer:
    """One side at work, with a topic and statuses of its own."""

    stack: Stack
    name: str
    port: int
    process: psutil.Process

    def spent(self) -> dict[str, float]:
        """CPU seconds so far, by process."""
        own = {"server": self.process, "caller": psutil.Process()}
        served = used([], self.stack.data)
        return {name: sum(one.cpu_times()[:2]) for name, one in own.items()} | {
            part: served.get(part, 0.0) for part in ("broker", "Valkey", "PostgreSQL")
        }

    def measure(self, calls: Sequence[bytes], connections: int, good: int) -> CallsRound:
        """Makes these calls."""
        before, begun = self.spent(), time.perf_counter()
        times = times_of(load(self.port, calls, connections, good))
        seconds, after = time.perf_counter() - begun, self.spent()
        cpu = {part: 1e6 * (after[part] - before[part]) / len(calls) for part in after}
        return CallsRound(len(calls) / seconds, times, {**cpu, "all": sum(cpu.values())})


@contextmanager
def server_of(stack: Stack, side: str) -> Iterator[HttpServer]:
    """It answers when this begins."""
    name, port = f"bench_{uuid.uuid4().hex[:8]}", free_port(set())
    create_topic(stack.kafka, name)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("ONCEPOOL_")}
    if side == BARE:
        command = ["-m", "benchmarks.gateway_bare", stack.kafka, stack.redis, name, str(port)]
    else:
        command = ["-m", "consumer", "gateway"]
        variables |= {
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka, "ONCEPOOL_KAFKA_TOPIC": name,
            "ONCEPOOL_REDIS_URL": stack.redis, "ONCEPOOL_REDIS_PREFIX": name,
            "ONCEPOOL_GATEWAY_PORT": str(port), "ONCEPOOL_LOG_LEVEL": "warning",
        }  # fmt: skip
    if side == JOURNAL:
        migrate(stack.database, name)
        variables |= {
            "ONCEPOOL_DATABASE_URL": stack.database, "ONCEPOOL_DATABASE_SCHEMA": name,
        }  # fmt: skip
    with running([sys.executable, *command], variables, ROOT) as process:
        until_it_answers(port, "/livez", lambda: process.poll() is None)
        yield HttpServer(stack, name, port, psutil.Process(process.pid))


def posts(count: int) -> list[bytes]:
    """Of so many new requests."""
    return [
        call(
            POST, f"/requests/{KIND}",
            f"Idempotency-Key: {uuid.uuid4()}\r\nContent-Type: application/json\r\n", PAYLOAD,
        )
        for _ in range(count)
    ]  # fmt: skip


def gets(server: HttpServer, count: int) -> list[bytes]:
    """Of so many requests that are done."""
    ids = [str(uuid.uuid4()) for _ in range(count)]
    store = RedisStatusStore(server.stack.redis, server.name, timeout=30.0)
    print_of = fingerprint(KIND, PAYLOAD)
    for first in range(0, count, 500):
        some = ids[first : first + 500]
        store.write([
            StatusWrite(
                one,
                StatusFields(one, KIND, State.DONE, 1, code="ok", attempt=1,
                             at=datetime.now(UTC), fingerprint=print_of).encode(),
                KEPT,
            )
            for one in some
        ])  # fmt: skip
    store.close()
    return [call(GET, f"/requests/{one}") for one in ids]


def one_round(server: HttpServer, count: int, connections: int) -> dict[str, CallsRound]:
    """Both methods; some calls before do not count."""
    load(server.port, posts(count // 10), connections, 202)
    load(server.port, gets(server, count // 10), connections, 200)
    return {
        POST: server.measure(posts(count), connections, 202),
        GET: server.measure(gets(server, count), connections, 200),
    }


def tell(found: Mapping[str, Mapping[str, Sequence[CallsRound]]], line: str) -> None:
    """Prints the tables."""
    for method, sides in found.items():
        bare = [one.rate for one in sides[BARE]]
        print_table(
            f"{method}: calls a second, milliseconds, and CPU of each call in microseconds",
            ("side", "calls/s", f"/ {BARE}", "p50", "p99", *PARTS),
            [
                (
                    side, median([one.rate for one in runs]),
                    str(ratio([one.rate for one in runs], bare)),
                    median([one.times.p50 for one in runs]),
                    median([one.times.p99 for one in runs]),
                    *(median([one.cpu[part] for one in runs]) for part in PARTS),
                )
                for side, runs in sides.items()
            ],
            line,
        )  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__, "one round, a tenth of the requests", ROUNDS)
    parser.add_argument("--requests", type=int, help=f"of each method (default: {REQUESTS})")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = options.requests or (REQUESTS // 10 if options.quick else REQUESTS)
    with services() as stack:
        machine = facts(stack)
        found: dict[str, dict[str, list[CallsRound]]] = {
            method: {side: [] for side in SIDES} for method in (POST, GET)
        }
        for number, side in in_turns(list(SIDES), rounds):
            with server_of(stack, side) as server:
                both = one_round(server, count, options.connections)
            for method, one in both.items():
                found[method][side].append(one)
            rates = ", ".join(f"{method} {one.rate:,.0f}/s" for method, one in both.items())
            say(f"round {number + 1} of {rounds}, {side}: {rates}")
    tell(found, machine.line)
    if options.whole:
        results = {"requests": count, "rounds": rounds, "connections": options.connections}
        write_json("gateway", machine, {**results, "found": found})


if __name__ == "__main__":
    main()
