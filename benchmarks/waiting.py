"""What a large waiting queue costs fresh requests, and how fast due rows drain.

    scripts/bench waiting [--quick] [--rounds N] [--workers N] [--rows N] [--against REV]

Two questions, each with sides that take turns in one run. Fresh requests beside an empty queue and
beside a million rows that wait for tomorrow. Requests that come from Kafka, and as many that are
due in the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import psycopg
from psycopg import sql

from benchmarks.full_path_runs import RunNames, fill_topic, instance
from benchmarks.full_path_sides import measured
from benchmarks.load import PAYLOAD
from benchmarks.machine import Machine, facts
from benchmarks.measured import Measured
from benchmarks.options import options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table
from benchmarks.services import services
from benchmarks.sides import Found, Side, keep, measure, rates_of, tell_cpu, tell_rates, with_aim
from benchmarks.spread import ratio
from benchmarks.watch import TallyWatch

WORKERS = 2
ROUNDS = 5
REQUESTS = 100_000
ROWS = 1_000_000
HANDLERS = {"bench.noop": "no-op", "bench.insert": "one INSERT"}
EMPTY, BESIDE, DUE = "empty queue", "beside a full queue", "due rows"
AIMS = {BESIDE: 0.95, DUE: 0.5}
"""What the side should reach, as a share of what fresh requests do beside an empty queue."""

_WAITING = """
INSERT INTO {table} (id, type, state, code, effect, topic, partition, kafka_offset, produced_at,
                     run, key, payload, headers, not_before, due_at)
SELECT 'w-' || n, %(type)s, 'waiting', 'delayed', 'transaction', %(topic)s, 0, n, now(), 0,
       ('w-' || n)::bytea, %(payload)s, '[]', now() + %(delay)s, now() + %(delay)s
FROM generate_series(1, %(count)s) n
"""


def main() -> None:
    parser = parser_of(__doc__, "one round, a tenth of the work", ROUNDS)
    parser.add_argument("--workers", type=int, default=WORKERS, help="worker processes")
    parser.add_argument("--rows", type=int, help=f"rows that wait (default: {ROWS:,})")
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    divisor = 10 if options.quick else 1
    rows = options.rows or ROWS // divisor
    count = REQUESTS // divisor
    sides = [
        Side(EMPTY, fresh, count), Side(BESIDE, beside(rows), count), Side(DUE, due, count),
    ]  # fmt: skip
    with other_tree(options.against) as tree, services() as stack:
        if tree is not None:
            sides += [replace(s, name=f"{s.name}, {options.against}", tree=tree) for s in sides]
        machine = facts(stack)
        found = measure(stack, HANDLERS, sides, options.workers, rounds)
    tell(machine, found, rows, rounds, whole=options.whole)


def fresh(where: RunNames, handler: str, count: int) -> Measured:
    """Requests from Kafka, nothing in the queue."""
    fill_topic(where, handler, count)
    return drained(where, count)


def beside(rows: int) -> Callable[[RunNames, str, int], Measured]:
    """Requests from Kafka, and `rows` in the queue that are due tomorrow."""

    def run(where: RunNames, handler: str, count: int) -> Measured:
        fill_queue(where, "bench.insert", rows, "1 day")
        return fresh(where, handler, count)

    return run


def due(where: RunNames, handler: str, count: int) -> Measured:
    """Requests of the queue that are due, nothing in Kafka."""
    fill_topic(where, handler, 0)
    fill_queue(where, handler, count, "0 s")
    return drained(where, count)


def drained(where: RunNames, count: int) -> Measured:
    """What one instance does that finds so many."""
    with instance(where, ONCEPOOL_APP="benchmarks.waiting_app:app") as process:
        return measured(where, "requests", count, TallyWatch(where.tally), process)


def fill_queue(where: RunNames, handler: str, count: int, delay: str) -> None:
    """Rows of state waiting, as an executor leaves them."""
    values = {
        "type": handler, "topic": where.name, "payload": PAYLOAD, "delay": delay, "count": count,
    }  # fmt: skip
    table = sql.Identifier(where.name, "requests")
    statement = sql.SQL(_WAITING.replace("%(delay)s", "%(delay)s::interval")).format(table=table)
    with psycopg.connect(where.stack.database, autocommit=True) as connection:
        connection.execute(statement, values)
        # As autovacuum has it after a while: the planner knows the table.
        connection.execute(sql.SQL("VACUUM ANALYZE {}").format(table))
        connection.execute("CHECKPOINT")


def tell(machine: Machine, found: Found, rows: int, rounds: int, *, whole: bool) -> None:
    """Prints the tables; a whole run is written down and drawn, too."""
    rates = rates_of(found)
    ratios = {
        handler: {side: ratio(sides[side], sides[EMPTY]) for side in sides if side != EMPTY}
        for handler, sides in rates.items()
    }
    tell_rates(rates, HANDLERS, f"{rows:,} rows waiting, median of {rounds}", machine.line)
    print_table(
        f"As a share of what fresh requests do beside an {EMPTY}: median (lowest - highest)",
        ("handler", *next(iter(ratios.values()))),
        [
            (name, *(with_aim(found, AIMS.get(side)) for side, found in ratios[key].items()))
            for key, name in HANDLERS.items()
        ],
    )
    tell_cpu(found, HANDLERS)
    if whole:
        results = {"rows": rows, "rounds": rounds, "share_of_fresh": ratios}
        title = "Fresh requests and the waiting queue: requests a second"
        keep("waiting", title, machine, results, found, HANDLERS)


if __name__ == "__main__":
    main()
