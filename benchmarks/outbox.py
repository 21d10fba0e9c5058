"""What stands in an outbox, on its way to Kafka.

    scripts/bench outbox [--quick] [--case rates|relays|latency|backlog] [--rounds N] [--backlog N]
                         [--relays 1,2,4] [--loads 0,1000,4000]
    scripts/bench outbox --churn N [--backlog N] [--keep N] [--random-ids] [--sets]

Rows are added before a side begins; it is timed until the last of them is marked as sent. In turns:
the relay; a bare loop of claim, produce, flush and mark over the same table, which checks nothing,
keeps no order, and fails with its first row that can't be sent; the plain form, a row at a time
(its timer of 5 s is left out of the rate); faststream-outbox. Then several relays side by side,
each a process. Then the relay with --backlog rows (a million), its first and last tenth, and behind
as many rows that were sent and deleted. Latency is from the commit of a single request until its
message is produced, and until a consumer has it: idle, and beside --loads rows a second that
another process adds; and of the plain form with its timer: see benchmarks/outbox_latency.py.
--churn has N rows go through the tables without Kafka: see benchmarks/outbox_churn.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from confluent_kafka import Producer

from benchmarks.frameworks_environment import NotInstalled, frameworks_python
from benchmarks.outbox_churn import churn
from benchmarks.outbox_latency import latency
from benchmarks.outbox_place import SCHEMA, OutboxPlace
from benchmarks.outbox_relays import relays
from benchmarks.report import print_table, say
from benchmarks.services import services
from feedback.outbox.relay import Relay
from stack import Stack

_SILENT = 60.0
"""Seconds without a row that is sent."""
CLAIM = f"""
SELECT seq, id, type, key, payload, headers FROM {SCHEMA}.requests WHERE state = 'unsent'
ORDER BY seq LIMIT %s FOR UPDATE SKIP LOCKED
"""
MARK = f"UPDATE {SCHEMA}.requests SET state = 'sent', sent_at = now() WHERE seq = ANY(%s)"


def until(relay: Relay, sent: int) -> float:
    """When so many rows were marked as sent. Raises TimeoutError."""
    done, news = 0, time.monotonic()
    while done < sent:
        time.sleep(0.005)
        state = relay.states()[0]
        if state.done > done:
            done, news = state.done, time.monotonic()
        if time.monotonic() > news + _SILENT:
            raise TimeoutError(f"{done:,} of {sent:,} rows are sent, and no more come: {state}")
    return time.monotonic()


def by_relay(place: OutboxPlace, rows: int) -> float:
    """Rows a second."""
    began = time.monotonic()
    with place.relay() as relay:
        return rows / (until(relay, rows) - began)


class BareLoop:
    """Claim, produce, flush and mark; with `batch` 1 the plain form."""

    def __init__(self, place: OutboxPlace, batch: int = 1_000) -> None:
        self._topic, self._batch = place.topic, batch
        self._producer = Producer({
            "bootstrap.servers": place.stack.kafka, "linger.ms": 5, "acks": "all",
            "enable.idempotence": True,
        })  # fmt: skip

    def send_due(self, connection: psycopg.Connection[Any]) -> None:
        """All that there is."""
        while self._send_batch(connection):
            pass

    def _send_batch(self, connection: psycopg.Connection[Any]) -> int:
        with connection.transaction():
            claimed = connection.execute(CLAIM.encode(), [self._batch]).fetchall()
            for _, id_, kind, key, payload, headers in claimed:
                plain = [(name, b64decode(value)) for name, value in headers]
                self._producer.produce(
                    self._topic, key=key, value=payload,
                    headers=[("ce_id", id_.encode()), ("ce_type", kind.encode()), *plain],
                )  # fmt: skip
            self._producer.flush(30)
            connection.execute(MARK.encode(), [[row[0] for row in claimed]])
        return len(claimed)


def by_loop(place: OutboxPlace, rows: int, batch: int = 1_000) -> float:
    """Rows a second."""
    loop = BareLoop(place, batch)
    began = time.monotonic()
    with psycopg.connect(place.stack.database, autocommit=True) as connection:
        loop.send_due(connection)
    return rows / (time.monotonic() - began)


def latencies(stack: Stack, number: int, loads: Sequence[int]) -> None:
    """In a topic of its own, whose messages have their brokers' time."""
    place = OutboxPlace(stack, **{"message.timestamp.type": "LogAppendTime"})
    latency(place, number, loads, BareLoop(place, 1).send_due)


def by_faststream(place: OutboxPlace, rows: int) -> float:
    """Rows a second. Raises NotInstalled."""
    command = [str(frameworks_python()), "-m", "benchmarks.frameworks.faststream_outbox_app"]
    done = subprocess.run(
        [*command, str(rows), "10"],
        env={
            **os.environ, "DATABASE": place.stack.database, "KAFKA": place.stack.kafka,
            "TOPIC": place.topic,
        },
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode:
        raise NotInstalled(done.stderr.strip()[-500:])
    return float(done.stdout)


def rates(place: OutboxPlace, rounds: int, rows: int, plain_rows: int) -> None:
    """All sides, in turns."""
    sides: dict[str, tuple[int, Callable[[int], float]]] = {
        "relay": (rows, lambda n: by_relay(place, n)),
        "bare loop": (rows, lambda n: by_loop(place, n)),
        "plain form": (plain_rows, lambda n: by_loop(place, n, 1)),
        "faststream-outbox": (plain_rows * 5, lambda n: by_faststream(place, n)),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=number % 2 == 1):
            n, side = sides[name]
            place.fill(n)
            try:
                found[name].append(side(n))
            except NotInstalled as error:
                say(f"{name}: skipped: {error}")
                continue
            say(f"{name}: {found[name][-1]:,.0f} rows/s")
    ours = found["relay"]
    lines = []
    for name, each in found.items():
        if len(each) < len(ours):
            continue
        ratios = sorted(a / b for a, b in zip(ours, each, strict=True))
        median = statistics.median(each)
        lines.append((name, f"{median:,.0f}", f"{statistics.median(ratios):.2f}",
                      f"{ratios[0]:.2f} to {ratios[-1]:.2f}"))  # fmt: skip
    print_table("outbox", ("side", "rows/s", "relay as a multiple", "lowest and highest"), lines)


def backlog(place: OutboxPlace, rows: int) -> None:
    """The first and last tenth of a backlog, and a table through which as many have gone."""
    part = rows // 10
    lines = []

    def timed(name: str, total: int) -> None:
        began = time.monotonic()
        with place.relay() as relay:
            first = until(relay, part)
            last = until(relay, total - part)
            end = until(relay, total)
        lines.append((name, f"{part / (first - began):,.0f}",
                      f"{part / (end - last):,.0f}" if total > part else ""))  # fmt: skip
        say(f"{name}: done after {end - began:.0f} s")

    place.fill(part)
    timed("fresh table", part)
    place.fill(rows)
    timed(f"{rows:,} rows waiting", rows)
    place.run(f"DELETE FROM {SCHEMA}.requests WHERE state = 'sent'")
    place.add(part)
    timed(f"after {rows:,} rows sent and deleted, not vacuumed by hand", part)
    print_table("backlog", ("table", f"first {part:,}, rows/s", f"last {part:,}, rows/s"), lines)


def main() -> None:
    """The benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run")
    parser.add_argument("--case", choices=["rates", "relays", "latency", "backlog"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backlog", type=int, help="rows that wait (1,000,000; --churn: 100,000)")
    parser.add_argument("--relays", default="1,2,4", help="how many side by side")
    parser.add_argument("--loads", default="0,1000,4000", help="rows a second beside, of latency")
    parser.add_argument("--churn", type=int, metavar="N", help="N rows through the tables, only")
    parser.add_argument("--keep", type=int, default=1_000_000, help="finished rows that stay")
    parser.add_argument("--random-ids", action="store_true", help="of --churn; else in order")
    parser.add_argument("--sets", action="store_true", help="of --churn: most of it in sets")
    given = parser.parse_args()
    if given.churn and given.case:
        parser.error("--churn is a case of its own: without --case")
    given.rows, given.waits, waiting = (100_000, 2_000), 500, 1_000_000
    if given.quick:
        given.rows, given.waits, waiting = (20_000, 200), 50, 100_000
        given.rounds = min(given.rounds, 2)
    numbers = [int(number) for number in given.relays.split(",")]
    loads = [int(load) for load in given.loads.split(",")]
    cases: dict[str, Callable[[OutboxPlace], None]] = {
        "rates": lambda place: rates(place, given.rounds, *given.rows),
        "relays": lambda place: relays(place, numbers, given.rounds, given.rows[0]),
        "latency": lambda place: latencies(place.stack, given.waits, loads),
        "backlog": lambda place: backlog(place, given.backlog or waiting),
    }
    if given.churn:
        cases = {"churn": lambda place: churn(
            place, given.churn, backlog=given.backlog or 100_000, keep=given.keep,
            random_ids=given.random_ids, sets=given.sets,
        )}  # fmt: skip
    with services() as stack:
        place = OutboxPlace(stack)
        for name, case in cases.items():
            if given.case in (None, name):
                case(place)


if __name__ == "__main__":
    main()
