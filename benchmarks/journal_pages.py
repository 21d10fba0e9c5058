"""How long each page of the gateway takes before a journal of many rows.

    scripts/bench journal_pages [--quick] [--rows N] [--rounds N]

A gateway as `oncepool gateway` starts it, with keys; logged in are an operator who sees all, and
one who sees one type of seven. All pages and lists are asked for in turns, so that what is kept for
some seconds is asked for anew as it is while people look. The first look of each, before anything
is kept or in memory, stands apart. Where p95 of a page is above 200 ms that is said, and the exit
code is 1. Before a move it is asked about each of up to 10,000 requests: that is shown, and not
judged; pages that look deep for seconds, as their readers ask them to, are not among these.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote

import httpx
import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.full_path_runs import ROOT, running
from benchmarks.http_load import until_it_answers
from benchmarks.journal_rows import PARTITIONS, fill, id_at
from benchmarks.load import create_topic
from benchmarks.machine import facts
from benchmarks.report import print_table, say
from benchmarks.services import services
from consumer.config.gateway_keys import hash_of
from feedback.journal.migrations import migrate
from stack import Stack
from stack.places import free_port

ROWS = 10_000_000
QUICK_ROWS = 300_000
ROUNDS = 20
GOAL = 200.0
"""Milliseconds."""
GROUP = "bench-pages"
KEYS = {"ops": f"ops-{'k' * 40}", "some": f"some-{'k' * 40}"}
PAGES = (
    "/", "/requests", "/requests?state=waiting", "/requests?state=running", "/requests?state=dead",
    "/requests?state=in_doubt", "/requests?state=failed", "/requests?state=superseded",
    "/requests?type=bench.3", "/requests?type=*.3&state=dead", "/requests?code=no_such_code",
    "/requests?text=no+such+text", "/requests?text=ValueError", "/requests?reference=parcel+1",
    "/requests?key=customer+77", "/requests?since=24h&state=done", "/requests?until=2h",
    "/requests?id=0*", "/requests?before={old}", "/requests/{done}", "/requests/{winner}",
    "/requests/{dead}", "/dead-letters", "/dead-letters?reason=no_such_reason",
    "/dead-letters?search=no+such+text", "/dead-letters?type=bench.3", "/dead-letters/5", "/limits",
    "/schedules", "/oddities", "/audit",
)  # fmt: skip
PAGES_OF_SOME = ("/", "/requests", "/requests?state=dead", "/dead-letters", "/oddities", "/audit")
ASKED = ("state=dead", "state=failed&type=bench.3")
"""Filters of all that is to be moved, of which there are more than can be moved at once."""
LISTS = (
    "/dead-letters", "/dead-letters?limit=500", "/dead-letters?reason=no_such_reason",
    "/dead-letters?search=no+such+text", "/requests/{done}", "/requests?id={done}&id={dead}",
)  # fmt: skip


class Looks:
    """What one page or list took, in milliseconds."""

    def __init__(
        self, name: str, path: str, http: httpx.Client, form: dict[str, str] | None = None
    ) -> None:
        """`form`: what is posted; it does no more than to ask."""
        self.name = name
        self._path = path
        self._http = http
        self._form = form
        self.first = 0.0
        self.times: list[float] = []
        self.odd: set[int] = set()
        """Statuses of answers that were none."""

    def look(self, *, first: bool = False) -> None:
        """Once."""
        begun = time.perf_counter()
        method = "GET" if self._form is None else "POST"
        answer = self._http.request(method, self._path, data=self._form)
        taken = 1000 * (time.perf_counter() - begun)
        if answer.status_code != 200:
            self.odd.add(answer.status_code)
        if first:
            self.first = taken
        else:
            self.times.append(taken)

    def row(self) -> tuple[object, ...]:
        """As the table has it."""
        times = sorted(self.times)
        p95 = times[math.ceil(0.95 * len(times)) - 1]
        said = "over" if self._form is None and (p95 > GOAL or self.odd) else ""
        told = f" ({', '.join(map(str, sorted(self.odd)))})" if self.odd else ""
        middle = times[len(times) // 2]
        return (self.name + told, self.first, times[0], middle, p95, times[-1], said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows")
    parser.add_argument("--rows", type=int, help=f"rows of the journal (default: {ROWS:,})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    options = parser.parse_args()
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    with services() as stack:
        machine = facts(stack)
        name = f"pages_{uuid.uuid4().hex[:8]}"
        places = prepare(stack, name, rows)
        with gateway(stack, name) as root:
            looks = asked(root, places)
            for number in range(options.rounds + 1):
                # Not always the same page behind the same one.
                for look in looks[number % len(looks) :] + looks[: number % len(looks)]:
                    look.look(first=number == 0)
                say(f"round {number} of {options.rounds}")
    sys.exit(tell(looks, rows, machine.line))


def prepare(stack: Stack, name: str, rows: int) -> dict[str, str]:
    """The journal, a topic, and commits that say of a part that it is not finished; ids by name."""
    create_topic(stack.kafka, name)
    migrate(stack.database, name)
    with psycopg.connect(stack.database, autocommit=True) as connection:
        begun = time.monotonic()
        fill(connection, name, name, rows)
        say(f"filled in {time.monotonic() - begun:.0f} s")
        middle = rows // 2 // 1000 * 1000
        found = connection.execute("SELECT now() - interval '2 hours'").fetchone()
        old = f"{found[0].isoformat() if found else ''} z"
        ids = {"done": id_at(connection, middle + 1), "winner": id_at(connection, middle),
               "dead": id_at(connection, middle + 21)}  # fmt: skip
    commit_gaps(stack, name, rows // PARTITIONS)
    return {"old": quote(old), **ids}


def commit_gaps(stack: Stack, topic: str, offset: int) -> None:
    """As an instance commits that has the last thousand of each partition in hand."""
    consumer = Consumer({"bootstrap.servers": stack.kafka, "group.id": GROUP})
    try:
        consumer.commit(
            offsets=[
                TopicPartition(topic, n, offset, f"1;bench-1;{max(0, offset - 1000)}")
                for n in range(PARTITIONS)
            ],
            asynchronous=False,
        )
    finally:
        consumer.close()


@contextmanager
def gateway(stack: Stack, name: str) -> Iterator[str]:
    """Its address; it answers when this begins."""
    port = free_port(set())
    roles = ["read", "operate"]
    keys = {
        "ops": {"hash": hash_of(KEYS["ops"]), "roles": roles},
        "some": {"hash": hash_of(KEYS["some"]), "roles": roles, "types": ["bench.3"]},
    }
    variables = {k: v for k, v in os.environ.items() if not k.startswith("ONCEPOOL_")} | {
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka, "ONCEPOOL_KAFKA_TOPICS": name,
        "ONCEPOOL_KAFKA_GROUP": GROUP, "ONCEPOOL_REDIS_URL": stack.redis,
        "ONCEPOOL_REDIS_PREFIX": name, "ONCEPOOL_DATABASE_URL": stack.database,
        "ONCEPOOL_DATABASE_SCHEMA": name, "ONCEPOOL_GATEWAY_PORT": str(port),
        "ONCEPOOL_LOG_LEVEL": "error", "ONCEPOOL_GATEWAY_KEYS": json.dumps(keys),
    }  # fmt: skip
    with running([sys.executable, "-m", "consumer", "gateway"], variables, ROOT) as process:
        until_it_answers(port, "/livez", lambda: process.poll() is None)
        yield f"http://127.0.0.1:{port}"


def asked(root: str, places: dict[str, str]) -> list[Looks]:
    """All that is asked for, each by whom it is asked."""
    looks = []
    for who, pages in (("ops", PAGES), ("some", PAGES_OF_SOME)):
        http = httpx.Client(base_url=root, timeout=60.0)
        answer = http.post("/ui/login", data={"key": KEYS[who], "next": "/"})
        if answer.status_code != 303:
            raise RuntimeError(f"the login of {who} was answered with {answer.status_code}")
        said = "" if who == "ops" else ", one type"
        looks += [Looks(f"/ui{page}{said}", f"/ui{page.format(**places)}", http) for page in pages]
        if who == "ops":
            [token] = set(re.findall(r'name="token" value="([^"]+)"', http.get("/ui/audit").text))
            looks += [_asking(filters, token, http) for filters in ASKED]
    headers = {"Authorization": f"Bearer {KEYS['ops']}"}
    http = httpx.Client(base_url=root, timeout=60.0, headers=headers)
    return looks + [Looks(path, path.format(**places), http) for path in LISTS]


def _asking(filters: str, token: str, http: httpx.Client) -> Looks:
    """The page that asks whether all that match are to be run again."""
    form = {"token": token, "action": "retry", "all": "1", **dict(parse_qsl(filters))}
    return Looks(f"asking to retry all: {filters}", "/ui/requests/ask", http, form)


def tell(looks: Sequence[Looks], rows: int, line: str) -> int:
    """Prints the table, and what is over the goal; 1 where anything is."""
    table = [look.row() for look in looks]
    print_table(
        f"Milliseconds of each page before {rows:,} requests in the journal",
        ("page", "first", "least", "p50", "p95", "max", f"> {GOAL:.0f} ms"),
        table,
        line,
    )
    over = [str(row[0]) for row in table if row[-1]]
    say(
        f"journal_pages: {len(table) - len(over)} of {len(table)} within {GOAL:.0f} ms"
        + (f"; over it: {'; '.join(over)}" if over else "")
    )
    return int(bool(over))


if __name__ == "__main__":
    main()
