"""A journal full of rows of all kinds, made by the server itself, in the order of time.

Three tenths of the requests are of the last day, the others of the 29 days before. Of a thousand
some ten wait, ten failed, twenty lost their place to another, one is dead.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from benchmarks.report import say

AT_ONCE = 1_000_000
"""Rows of one statement."""
PARTITIONS = 12
TYPES = 7
"""Of which the names are bench.0 and so on."""
_FUNCTIONS = """
CREATE FUNCTION pg_temp.made(n bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT {now}::timestamptz - CASE WHEN {rows} - n < 0.3 * {rows}
        THEN ({rows} - n) / (0.3 * {rows}) * interval '1 day'
        ELSE interval '1 day' + (({rows} - n) / (0.7 * {rows}) - 3.0 / 7) * interval '29 days' END
$$;
CREATE FUNCTION pg_temp.named(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(to_hex((extract(epoch FROM pg_temp.made(n)) * 1000)::bigint), 12, '0')
           || substr(md5(n::text), 1, 20)
$$
"""
_REQUESTS = """
INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,
    produced_at, created_at, finished_at, run, attempt, key, fingerprint, payload, headers, error,
    reason, resends, resent_from, due_at, reference, coalesce_key, superseded_by, token,
    lease_until)
SELECT id, 'bench.' || n %% {types}, state,
       CASE state WHEN 'done' THEN 'ok' WHEN 'waiting' THEN 'retry' WHEN 'running' THEN 'claimed'
           WHEN 'superseded' THEN 'superseded' WHEN 'cancelled' THEN 'cancelled'
           ELSE (ARRAY['handler_error', 'timeout', 'invalid'])[n / 100 %% 3 + 1] END,
       CASE state WHEN 'running' THEN 'external' ELSE 'transaction' END, {topic},
       n %% {partitions}, n / {partitions}, at - interval '40 ms', at,
       CASE WHEN state NOT IN ('waiting', 'running') THEN at + n %% 9 * interval '15 ms' END,
       CASE state WHEN 'done' THEN 1 ELSE 3 END, 1, ('customer ' || n %% 10007)::bytea,
       decode(md5(n::text), 'hex'),
       CASE WHEN state <> 'done' THEN convert_to(format(
           '{{"order": %%s, "customer": {{"name": "c-%%s", "password": "p"}}, "lines": "%%s"}}', n,
           n %% 10007, repeat('a line of it; ', 12)), 'UTF8') END,
       CASE WHEN state <> 'done' THEN '[["ce_type", "YmVuY2g="]]'::jsonb END,
       CASE WHEN state IN ('failed', 'dead', 'in_doubt') THEN format(
           E'Traceback (most recent call last):\\n%%sValueError: order %%s is odd',
           repeat(E'  File "app.py", line 1, in handler\\n', 6), n) END,
       CASE WHEN state = 'cancelled' THEN 'asked for' END,
       CASE WHEN n %% 1000 < 3 THEN 1 + n / 1000 %% 9 ELSE 0 END,
       CASE WHEN n %% 1000 < 3 THEN {topic} || '/0/' || n END,
       CASE WHEN state = 'waiting' THEN now() + (n %% 90 - 10) * interval '1 hour' END,
       CASE WHEN n %% 50 IN (0, 7) THEN 'parcel ' || (n + 49) / 50 END,
       CASE WHEN state = 'superseded' THEN 'parcel ' || (n + 49) / 50 END,
       CASE WHEN state = 'superseded' THEN pg_temp.named(least({rows}, (n + 49) / 50 * 50)) END,
       CASE WHEN state = 'running' THEN 'bench-1' END,
       CASE WHEN state = 'running' THEN now() + interval '1 hour' END
FROM (SELECT n, pg_temp.made(n) AS at, pg_temp.named(n) AS id,
             CASE WHEN n %% 50 = 7 THEN 'superseded' WHEN n %% 100 = 11 THEN 'waiting'
                  WHEN n %% 100 = 13 THEN 'failed' WHEN n %% 1000 = 21 THEN 'dead'
                  WHEN n %% 1000 = 23 THEN 'rejected' WHEN n %% 1000 = 25 THEN 'cancelled'
                  WHEN n %% 10000 = 31 THEN 'in_doubt' WHEN n %% 100000 = 33 THEN 'running'
                  ELSE 'done' END AS state
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) n) t
"""
_BESIDE = (
    """INSERT INTO {s}.attempts (started_at, ended_at, run, request_id, code, error)
       SELECT made, made, run, id, code, error FROM (
           SELECT created_at AS made, 1 AS run, id, code, error FROM {s}.requests
           WHERE state IN ('dead', 'in_doubt')) ended""",
    """INSERT INTO {s}.transitions (at, run, request_id, action, from_state, to_state, who, why)
       SELECT finished_at, 3, id, 'retry', 'dead', 'waiting', 'ann', 'mended' FROM {s}.requests
       WHERE state = 'dead' ORDER BY finished_at""",
    """INSERT INTO {s}.dead_letters (kafka_offset, produced_at, at, partition, topic, reason,
           request_id, detail, headers, payload)
       SELECT n, at, at, n %% {partitions}, {topic},
              CASE WHEN n %% 10 = 0 THEN 'conflict' ELSE 'malformed' END,
              CASE WHEN n %% 10 = 0 THEN pg_temp.named(n * 1000 + 21) END, 'is odd',
              '[["ce_type", "YmVuY2gueA=="]]', convert_to(format('{{"order": %%s}}', n), 'UTF8')
       FROM (SELECT n, pg_temp.made(n * 1000) AS at
             FROM generate_series(1, {rows} / 1000) n) t""",
    """INSERT INTO {s}.operator_changes (at, what, name, type, action, who, why)
       SELECT pg_temp.made(n * 10000), 'limits', 'bench.1', 'bench.1', 'set', 'bob', 'busy'
       FROM generate_series(1, {rows} / 10000) n""",
    """INSERT INTO {s}.counters (minute, n, type, state, code)
       SELECT date_trunc('minute', now()) - m * interval '1 minute', greatest(1, {rows} / 50000),
              'bench.' || t, split_part(ends, ' ', 1), split_part(ends, ' ', 2)
       FROM generate_series(0, 2 * 1440) m, generate_series(0, {types} - 1) t,
            unnest(ARRAY['done ok', 'failed timeout', 'superseded superseded', 'dead handler_error',
                         'lost at_commit', 'done read_again']) ends""",
    """INSERT INTO {s}.schedules (name, type, cron, tz, missed, decided_until, last_tick)
       SELECT 'schedule ' || n, 'bench.1', '0 6 * * *', 'Europe/Oslo', 'latest', now(), now()
       FROM generate_series(1, 30) n""",
)


def fill(connection: psycopg.Connection[Any], schema: str, topic: str, rows: int) -> None:
    """Makes them in an empty journal; the connection is in autocommit mode."""
    found = connection.execute("SELECT now()").fetchone()
    names: dict[str, sql.Composable] = {
        "s": sql.Identifier(schema), "topic": sql.Literal(topic), "rows": sql.Literal(rows),
        "types": sql.Literal(TYPES), "partitions": sql.Literal(PARTITIONS),
        "now": sql.Literal(str(found[0]) if found else ""),
    }  # fmt: skip
    connection.execute(sql.SQL(_FUNCTIONS).format(**names))
    for first in range(1, rows + 1, AT_ONCE):
        last = min(first + AT_ONCE - 1, rows)
        connection.execute(sql.SQL(_REQUESTS).format(**names), {"first": first, "last": last})
        say(f"{last:,} rows")
    for text in _BESIDE:
        connection.execute(sql.SQL(text).format(**names), {})
    for table in ("requests", "dead_letters", "transitions", "attempts", "counters"):
        # As autovacuum has it after a while.
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(schema, table)))
    connection.execute("CHECKPOINT")


def id_at(connection: psycopg.Connection[Any], number: int) -> str:
    """The id of a row, on the connection that filled the journal."""
    found = connection.execute("SELECT pg_temp.named(%s)", [number]).fetchone()
    return str(found[0]) if found else ""
