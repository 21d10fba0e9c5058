"""What becomes of an outbox's tables when very many requests go through them.

Each request is added, claimed, marked as sent and settled by the outbox's own code and statements,
a thousand at a time as a relay does; where Kafka and Redis would be there is nothing. A backlog
stays in front of the relay all the time, one request of ten thousand is never answered, and of the
finished ones the newest are kept. Autovacuum runs as the tables and the server have it. Commits do
not wait for the disk. With `sets` only the last 100,000 of each tenth go that way, and are what is
measured; the others are taken through by statements of their own: see outbox_sets.py.
"""

from __future__ import annotations

import random
import statistics
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, NamedTuple
from zlib import crc32

from benchmarks.outbox_place import KEYS, PAYLOAD, SCHEMA, SHARDS_OF_KEYS, OutboxPlace
from benchmarks.outbox_sets import NEVER_ANSWERED, OutboxSets
from benchmarks.report import print_table, say
from feedback.contract.states import State
from feedback.outbox.connections import run
from feedback.outbox.dead_letters import OutboxOperator
from feedback.outbox.names import DEFAULT_SENDER
from feedback.outbox.relay.answers import YOUNG, AnswerPolicy
from feedback.outbox.relay.batch import BatchMarks
from feedback.outbox.relay.claim_width import ClaimWidth
from feedback.outbox.relay.database import Bounds, RelayDatabase
from feedback.outbox.relay.settling import Settling
from feedback.outbox.rows import OutboxRow, row_of
from feedback.outbox.steps import adding
from feedback.postgres import Connection, open_connection
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusFields

ROUND: Final = 10_000
"""Rows that are added at once; a relay's batches then take as many away."""
FRESH: Final = 10
"""Rounds of the first stretch, which tells of a fresh table."""
STRETCHES: Final = 10
_WHOLE_EVERY: Final = 20
"""Rounds until a pass looks at all rows that wait for an answer."""
_PHASES: Final = ("add", "claim and mark", "settle", "prune")
_SIZES: Final = f"""
SELECT relname, pg_relation_size(oid) / 1048576.0 FROM pg_class
WHERE relnamespace = '{SCHEMA}'::regnamespace AND relkind IN ('r', 'i')
    AND (relname LIKE 'requests%' OR relname LIKE 'finished%')
ORDER BY relname
"""
_DEAD: Final = f"""
SELECT n_dead_tup, autovacuum_count FROM pg_stat_user_tables
WHERE schemaname = '{SCHEMA}' AND relname = 'requests'
"""


class AnsweredAtOnce(MemoryStatusStore):
    """All are done, but for one of ten thousand that nobody answers."""

    _done = StatusFields("", "bench", State.DONE, 1, "ok", 1, datetime.now(UTC)).encode()

    def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
        """As a store that has them all."""
        return [self._done if crc32(id_.encode()) % NEVER_ANSWERED else None for id_ in ids]


class ChurnStretch(NamedTuple):
    """What was seen while some rows went through."""

    through: int
    """Rows that had ended when it was over."""
    rate: float
    """Rows a second."""
    turns: list[float]
    """Milliseconds of each claim with its mark."""
    phases: dict[str, float]
    """Milliseconds for a thousand rows."""
    sizes: dict[str, float]
    """MiB of each table and index."""
    dead: int
    vacuums: int


class OutboxChurn:
    """Rows on their way through one outbox."""

    def __init__(self, place: OutboxPlace, *, keep: int, random_ids: bool) -> None:
        """`keep`: so many finished rows, at least, are not pruned."""
        self._place = place
        self._keep = keep
        self._random_ids = random_ids
        self._template = row_of("bench", PAYLOAD, {})
        self._keys = [
            {"key": b64encode(f"k{n}".encode()).decode(), "shard": shard}
            for n, shard in enumerate(SHARDS_OF_KEYS)
        ]
        month = 30 * 86_400.0
        policy = AnswerPolicy(resend_after=month, longest=month)
        self._producer = self._connect()
        self._sends = self._connect()
        self._reads = self._connect()
        self._rows = RelayDatabase(self._sends, SCHEMA, DEFAULT_SENDER, policy)
        self._rows.prepare()
        self._width = ClaimWidth(Bounds().shards)
        self._settling = Settling(SCHEMA, DEFAULT_SENDER, AnsweredAtOnce(), policy, inbox=False)
        self._operator = OutboxOperator(self._reads, SCHEMA)
        self._added = 0
        self._pruned = 0
        self._kept: deque[tuple[int, datetime]] = deque()
        """How many had ended when: what ended before then may be pruned."""
        self._turns: list[float] = []
        self._spent = dict.fromkeys(_PHASES, 0.0)

    def add(self, rows: int) -> None:
        """As a producer does."""
        with self._timed("add"):
            made = [self._row() for _ in range(rows)]
            run(self._producer, adding(made, SCHEMA), SCHEMA)

    def stretch(self, rounds: int) -> ChurnStretch:
        """So many rounds."""
        self._turns = []
        self._spent = dict.fromkeys(_PHASES, 0.0)
        before, began = self._settling.ended, time.monotonic()
        for number in range(rounds):
            self.add(ROUND)
            self._send(ROUND)
            self._settle(whole=number % _WHOLE_EVERY == 0)
            self._prune()
        ended = self._settling.ended
        if ended - before < 0.9 * rounds * ROUND:
            raise RuntimeError(f"of {rounds * ROUND:,} rows {ended - before:,} have ended")
        rate = (ended - before) / (time.monotonic() - began)
        thousands = rounds * ROUND / 1000
        phases = {name: seconds * 1000 / thousands for name, seconds in self._spent.items()}
        sizes = {name: float(size) for name, size in self._place.connection.execute(_SIZES)}
        [(dead, vacuums)] = self._place.connection.execute(_DEAD).fetchall()
        return ChurnStretch(ended, rate, self._turns, phases, sizes, dead, vacuums)

    def forget_ended(self) -> None:
        """Others have pruned all that has ended here."""
        self._pruned = self._settling.ended
        self._kept.clear()

    def close(self) -> None:
        """Ends its connections."""
        for connection in (self._producer, self._sends, self._reads):
            connection.close()

    def _connect(self) -> Connection:
        connection = open_connection(self._place.stack.database, "oncepool churn")
        connection.execute("SET synchronous_commit = off")
        return connection

    def _row(self) -> OutboxRow:
        self._added += 1
        id_ = f"{random.getrandbits(128):032x}" if self._random_ids else f"b{self._added:015}"
        fields = self._template.fields | self._keys[self._added % KEYS]
        fields["id"] = id_
        return self._template._replace(id=id_, fields=fields)

    def _send(self, rows: int) -> None:
        """A relay's turns without a broker."""
        left = rows
        while left > 0:
            began = time.monotonic()
            with self._timed("claim and mark"), self._rows.transaction():
                claimed = self._rows.claim(Bounds(shards=self._width.shards))
                self._width.claimed(full=len(claimed) >= Bounds().rows)
                self._rows.mark(BatchMarks([row.seq for row in claimed], []))
            self._turns.append((time.monotonic() - began) * 1000)
            left -= len(claimed)

    def _settle(self, *, whole: bool) -> None:
        with self._timed("settle"):
            while self._settling.page(self._reads, None if whole else YOUNG):
                pass

    def _prune(self) -> None:
        """In the steps of an operator who has it done often."""
        [(now,)] = self._reads.execute("SELECT now()").fetchall()
        self._kept.append((self._settling.ended, now))
        if self._settling.ended - self._pruned < self._keep + 10 * ROUND:
            return
        while self._settling.ended - self._kept[1][0] >= self._keep:
            self._kept.popleft()
        with self._timed("prune"):
            self._pruned += sum(self._operator.prune_parts(self._kept[0][1]))

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent[phase] += time.monotonic() - began


def churn(
    place: OutboxPlace, rows: int, *, backlog: int, keep: int, random_ids: bool, sets: bool
) -> None:
    """Has so many rows go through; what the first and each tenth of them met.

    `sets`: of each tenth, all but the last rows go through in sets.
    """
    made = OutboxChurn(place, keep=keep, random_ids=random_ids)
    for _ in range(-(-backlog // ROUND)):
        made.add(ROUND)
    say(f"{backlog:,} rows wait; {rows:,} are to go through")
    rounds = max(1, (rows // ROUND - FRESH) // STRETCHES)
    found = []
    with _bulk(place, keep) as bulk:
        for number in range(STRETCHES + 1):
            measured = rounds if number and not sets else FRESH
            if number and rounds > measured:
                _hasten(bulk, rounds - measured)
                made.forget_ended()
            last = made.stretch(measured)
            found.append(last._replace(through=last.through + bulk.ended))
            last = found[-1]
            say(
                f"{last.through:,} through: {last.rate:,.0f} rows/s, claim and mark of a batch"
                f" {statistics.median(last.turns):.1f} ms, {last.dead:,} dead rows"
            )
    made.close()
    _print(found)


@contextmanager
def _bulk(place: OutboxPlace, keep: int) -> Iterator[OutboxSets]:
    connection = open_connection(place.stack.database, "oncepool churn in sets")
    try:
        connection.execute("SET synchronous_commit = off")
        yield OutboxSets(connection, rows=ROUND, keep=keep)
    finally:
        connection.close()


def _hasten(bulk: OutboxSets, rounds: int) -> None:
    began, before = time.monotonic(), bulk.ended
    for _ in range(rounds):
        bulk.round()
    rate = (bulk.ended - before) / (time.monotonic() - began)
    say(f"{bulk.ended:,} through in sets, {rate:,.0f} rows/s")


def _print(found: Sequence[ChurnStretch]) -> None:
    lines = []
    for each in found:
        points = statistics.quantiles(each.turns, n=100)
        lines.append((
            f"{each.through:,}", each.rate, points[49], points[98],
            *(each.phases[name] for name in _PHASES),
            each.dead, each.vacuums,
        ))  # fmt: skip
    print_table(
        "churn",
        ("rows through", "rows/s", "batch p50, ms", "p99", *_PHASES, "dead rows", "vacuums"),
        lines,
        "a batch: claim and mark of 1,000 rows; phases: ms for 1,000 rows",
    )
    middle = found[len(found) // 2]
    print_table(
        "sizes, MiB",
        ("table or index", *(f"{each.through:,}" for each in (found[0], middle, found[-1]))),
        [
            (name, found[0].sizes[name], middle.sizes[name], size)
            for name, size in found[-1].sizes.items()
        ],
    )
