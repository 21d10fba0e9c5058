"""The gateway's pages before a journal of many rows: how long each takes.

    scripts/bench pages [--quick] [--rows N]

Each page is asked for again and again, in this process; what is kept between two
looks is thrown away before each, so that the times are those of the one who has to wait.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from typing import Any

import httpx
import psycopg
from psycopg import sql

from benchmarks.report import print_table, say
from benchmarks.services import services
from consumer.config.loader import load_settings
from consumer.config.settings import Settings
from consumer.gateway.app import create_app
from feedback.journal.migrations import migrate

ROWS = 10_000_000
AT_ONCE = 1_000_000
LOOKS = 7
GOAL = 0.2
"""Seconds."""
PAGES = (
    "/", "/requests", "/requests?state=waiting", "/requests?state=dead", "/requests?state=done",
    "/requests?code=no_such_code", "/requests?text=needle", "/requests?id=r1*", "/requests/r1000",
    "/dead-letters", "/oddities", "/audit", "/limits",
)  # fmt: skip
_FILL = """
INSERT INTO {table} (id, type, state, code, effect, topic, partition, kafka_offset, produced_at,
                     created_at, finished_at, run, key, fingerprint, payload, resends, due_at)
SELECT 'r' || n, 'bench.' || n %% 7, state, 'ok', 'transaction', 'old', 0, n, at, at,
       CASE WHEN state <> 'waiting' THEN at + interval '20 ms' END, 1, ('r' || n)::bytea,
       decode(md5(n::text), 'hex'), CASE WHEN state <> 'done' THEN '{{"n": 1}}'::bytea END,
       (n %% 1000 = 0)::int, CASE WHEN state = 'waiting' THEN now() + interval '1 day' END
FROM (SELECT n, now() - (%s - n) * interval '20 ms' AS at,
             CASE WHEN n %% 100 = 0 THEN 'waiting' WHEN n %% 1000 = 1 THEN 'dead'
                  WHEN n %% 50 = 1 THEN 'failed' ELSE 'done' END AS state
      FROM generate_series(%s::bigint, %s::bigint) n) t
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 M rows")
    parser.add_argument("--rows", type=int, help=f"rows of the journal (default: {ROWS:,})")
    options = parser.parse_args()
    rows = options.rows or (AT_ONCE if options.quick else ROWS)
    with services() as stack:
        schema = f"pages_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(stack.database, autocommit=True) as connection:
            migrate(stack.database, schema)
            fill(connection, schema, rows)
        settings = load_settings(
            {"database_url": stack.database, "database_schema": schema, "redis_url": stack.redis,
             "kafka_bootstrap_servers": stack.kafka, "kafka_topics": ["old"]},
            environ={},
        )  # fmt: skip
        times = asyncio.run(measure(settings))
    table = [[page, *(1000 * one for one in found), "yes" if found[1] <= GOAL else "NO"]
             for page, found in times.items()]  # fmt: skip
    print_table(
        f"Pages before {rows:,} rows", ("page", "median ms", "longest ms", "in 200 ms"), table
    )


def fill(connection: psycopg.Connection[Any], schema: str, rows: int) -> None:
    """Fifty a second up to now: one in a hundred waits, one in a thousand is dead."""
    text = sql.SQL(_FILL).format(table=sql.Identifier(schema, "requests"))
    for start in range(1, rows + 1, AT_ONCE):
        end = min(start + AT_ONCE - 1, rows)
        connection.execute(text, [rows, start, end])
        say(f"{end:,} rows")
    connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(schema, "requests")))


async def measure(settings: Settings) -> dict[str, tuple[float, float]]:
    """Page -> median and longest time of the looks, in seconds, the first one left out."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    times: dict[str, tuple[float, float]] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        for page in PAGES:
            found = []
            for _ in range(LOOKS + 1):
                app.state.parts.pages.services.forget()
                started = time.monotonic()
                answer = await http.get(f"/ui{page}")
                found.append(time.monotonic() - started)
                answer.raise_for_status()
            found = sorted(found[1:])
            times[page] = (found[len(found) // 2], found[-1])
    await app.state.parts.close()
    return times


if __name__ == "__main__":
    main()
