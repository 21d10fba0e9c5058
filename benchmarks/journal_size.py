"""Whether a large journal slows requests down.

    scripts/bench journal_size [--quick] [--rounds N] [--rows N]... [--against REV]

A handler that does nothing, and a row of the journal for each request, in journals of no rows, 10 M
and 50 M (`--rows`, more than once), with ids ordered by time, as Oncepool's client makes them, and
with random ones; then the smallest journal that has rows while old ones are pruned. Journals are
filled once and measured in turns. Handlers count: see benchmarks/tally.py.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg import sql

from benchmarks.contenders import TALLIED, Contender
from benchmarks.cpu import medians
from benchmarks.full_path_runs import ROOT, RunNames, place, running
from benchmarks.machine import facts
from benchmarks.measured import Measured
from benchmarks.options import add_count, add_workers, count_of, options_of, parser_of, rounds_of
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio, spread
from stack import Stack

ROUNDS = 5
COUNT = 100_000
ROWS = (10_000_000, 50_000_000)
AT_ONCE = 1_000_000
"""Rows of one statement."""
EMPTY = "empty"
_FILL = """
INSERT INTO {table} (id, type, state, code, effect, topic, partition, kafka_offset, produced_at,
                     finished_at, created_at, run, key, fingerprint)
SELECT id, 'bench.row', 'done', 'ok', 'transaction', 'old', 0, n, at, at, at, 1, id::bytea,
       decode(md5(id), 'hex')
FROM (SELECT n, at, {id} AS id FROM (
    SELECT n, now() - interval '60 days' + n * interval '100 ms' AS at
    FROM generate_series(%s::bigint, %s::bigint) n) t) u
"""
_ORDERED = """lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
|| substr(md5(n::text), 1, 20)"""
_RANDOM = "gen_random_uuid()::text"


@dataclass(frozen=True, slots=True)
class Sized:
    """One side: a journal."""

    name: str
    rows: int = 0
    ordered: bool = True
    pruned: bool = False
    tree: Path = ROOT


def main() -> None:
    parser = parser_of(__doc__, "one round, 1 M rows, a third of work", ROUNDS)
    parser.add_argument("--rows", type=int, action="append", help="rows of a journal")
    add_count(parser, COUNT)
    add_workers(parser)
    add_option(parser)
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = count_of(options, COUNT)
    sizes = options.rows or ([1_000_000] if options.quick else list(ROWS))
    with other_tree(options.against) as tree, services() as stack, ExitStack() as kept:
        machine = facts(stack)
        sides = sides_of(sizes)
        if tree is not None:
            sides.append(replace(sides[1], name=f"{sides[1].name}, {options.against}", tree=tree))
        places = {}
        for side in sides:
            places[side.name] = kept.enter_context(place(stack, options.workers, side.tree))
            fill(stack, places[side.name].name, side)
        found: dict[str, list[Measured]] = {side.name: [] for side in sides}
        for number, side in in_turns(sides, rounds):
            measured = run(places[side.name], side, count)
            found[side.name].append(measured)
            say(f"round {number + 1} of {rounds}, {side.name}: {measured.rate:,.0f} requests/s")
    tell(found, machine.line)
    if options.whole:
        write_json("journal_size", machine, {"rows": sizes, "rounds": rounds, "found": found})
    last = [f"{name} {share_of(found, name)}" for name in found if name != EMPTY]
    say(f"journal_size: as a share of an empty journal: {'; '.join(last)}")


def sides_of(sizes: Sequence[int]) -> list[Sized]:
    """An empty journal, then each size with either kind of ids, then one that is pruned."""
    sides = [Sized(EMPTY)]
    for rows in sizes:
        sides += [
            Sized(f"{rows:,} rows", rows), Sized(f"{rows:,} rows, random ids", rows, ordered=False),
        ]  # fmt: skip
    return [*sides, Sized(f"{min(sizes):,} rows, pruned", min(sizes), pruned=True)]


def fill(stack: Stack, schema: str, side: Sized) -> None:
    """Rows of requests that were done sixty days ago and later, ten a second."""
    table = sql.Identifier(schema, "requests")
    new_id = sql.SQL(_ORDERED if side.ordered else _RANDOM)
    statement = sql.SQL(_FILL).format(table=table, id=new_id)
    begun = time.monotonic()
    with psycopg.connect(stack.database, autocommit=True) as connection:
        for first in range(0, side.rows, AT_ONCE):
            last = min(first + AT_ONCE, side.rows)
            connection.execute(statement, (first + 1, last))
        # As autovacuum has it after a while.
        connection.execute(sql.SQL("VACUUM (ANALYZE, FREEZE) {}").format(table))
        connection.execute("CHECKPOINT")
    say(f"{side.name}: filled in {time.monotonic() - begun:.0f} s")


def run(home: RunNames, side: Sized, count: int) -> Measured:
    """One run in a journal that stays: with a topic, a group and statuses of its own."""
    contender = Contender(
        side.name, table=TALLIED, app="benchmarks.handoff_app:app", tree=side.tree,
        ordered=side.ordered,
    )  # fmt: skip
    with TemporaryDirectory(prefix="oncepool-tally-") as folder:
        where = replace(
            home, name=f"bench{uuid.uuid4().hex[:10]}", tally=Path(folder), journal=home.name
        )
        with ExitStack() as beside:
            if side.pruned:
                beside.enter_context(pruning(where))
            return contender.run(where, "bench.row", count)


@contextmanager
def pruning(where: RunNames) -> Iterator[None]:
    """`oncepool prune` deletes old rows meanwhile; says so where it had none left."""
    command = ["prune", "--older-than", "30d", "--force", "--yes", "--json"]
    environment = {**where.settings, "ONCEPOOL_KAFKA_TOPICS": where.name}
    with running([sys.executable, "-m", "consumer", *command], environment) as process:
        yield
        if process.poll() is not None:
            say(f"pruning had ended before, with {process.returncode}")


def share_of(found: Mapping[str, Sequence[Measured]], side: str) -> str:
    """Its rate as a share of that with an empty journal."""
    return str(ratio([m.rate for m in found[side]], [m.rate for m in found[EMPTY]]))


def tell(found: Mapping[str, Sequence[Measured]], caption: str) -> None:
    """Prints the table."""
    print_table(
        "Requests a second, and the share of an empty journal's: median (lowest - highest)",
        ("journal", "requests/s", "share", "PostgreSQL us", "all us"),
        [
            (
                name,
                spread([m.rate for m in runs]).median,
                share_of(found, name),
                cpu["PostgreSQL"],
                cpu["all"],
            )
            for name, runs in found.items()
            for cpu in [medians([m.cpu for m in runs])]
        ],
        caption,
    )


if __name__ == "__main__":
    main()
