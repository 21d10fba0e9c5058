"""What was sent in a flood and what became of it, compared by the database: a million at once.

The sender's side is a table beside the journal, filled by COPY as the broker confirms; nothing is
held in memory but what is on its way there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from tests.chaos.odd_messages import DONE, LETTER, UNKNOWN, Message

AT_ONCE = 5_000
SHOWN = 3
"""Examples of each kind of difference."""
GIVEN_UP = "dead/unknown_type"
"""What a request of an unknown type becomes once its retries are used up, in about 25 minutes."""
NOTHING = "nothing"
TABLES = """
CREATE TABLE {s}.sent (n bigint, id text, ending text, change text, partition int, place bigint);
CREATE TABLE {s}.effects (id text);
"""
COMPARE = """
WITH letters AS (
    SELECT partition, kafka_offset AS place, count(*) AS n FROM {s}.dead_letters GROUP BY 1, 2
), ran AS (SELECT id, count(*) AS n FROM {s}.effects GROUP BY 1),
found AS (
    SELECT coalesce(r.id, ran.id) AS id, coalesce(r.state || '/' || r.code, 'nothing') AS ending,
        coalesce(ran.n, 0) AS effects,
        r.attempt > 1 OR r.resends > 0 OR r.crashes > 0 AS again
    FROM {s}.requests r FULL JOIN ran ON ran.id = r.id
)
SELECT s.ending, s.change, coalesce(f.ending, 'nothing'), coalesce(l.n, 0), coalesce(f.effects, 0),
    coalesce(f.again, false), count(*),
    (array_agg(coalesce(s.n::text, f.id, l.partition || '/' || l.place)))[1:{shown}]
FROM {s}.sent s
FULL JOIN found f ON f.id = s.id
FULL JOIN letters l ON l.partition = s.partition AND l.place = s.place
GROUP BY 1, 2, 3, 4, 5, 6
"""


class Group(NamedTuple):
    """Messages that are alike in all that is asked of them."""

    wanted: str | None
    """The end that the contract gives them; None where nobody sent them."""
    change: str | None
    found: str
    """state/code of their row."""
    letters: int
    """Dead letters at the place of each."""
    effects: int
    """Runs that left something, of each."""
    again: bool
    """They were tried, sent or claimed more than once."""
    messages: int
    examples: Sequence[str]


def wrong(groups: Iterable[Group]) -> list[str]:
    """Groups that are not as they have to be, in words. Pure."""
    return [
        f"{group.messages:,} of {group.change or 'valid'} ({', '.join(group.examples)}): {fault}"
        for group in groups
        if (fault := _fault(group))
    ]


def _fault(group: Group) -> str:
    if group.wanted is None:
        what = "a row" if group.found != NOTHING else "an effect" if group.effects else "a letter"
        return f"{what} that nobody sent"
    row = NOTHING if group.wanted == LETTER else group.wanted
    rows = {row, GIVEN_UP} if row == UNKNOWN else {row}
    if group.found not in rows:
        return f"{group.found}, not {group.wanted}"
    if group.letters != (group.wanted == LETTER):
        return f"{group.letters} dead letters, and {group.found}"
    if group.effects != (group.wanted == DONE):
        return f"{group.effects} effects, and {group.found}"
    if group.again and group.wanted != UNKNOWN:
        return f"{group.found}, but not at once"
    return ""


class OddLedger:
    """The table of what was sent, and the comparison."""

    def __init__(self, database: str, schema: str) -> None:
        self._database, self._schema = database, schema
        self._rows: list[tuple[Any, ...]] = []
        self.ends: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        with self._connect() as connection:
            connection.execute(self._sql(TABLES))

    def add(self, number: int, message: Message, partition: int, offset: int) -> None:
        """Of one that the broker has confirmed."""
        self.ends[message.end] += 1
        self.changes[message.change] += 1
        row = (number, message.id, message.end, message.change, partition, offset)
        self._rows.append(row)
        if len(self._rows) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        statement = self._sql("COPY {s}.sent FROM STDIN")
        with self._connect() as connection, connection.cursor().copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    @property
    def sent(self) -> int:
        return self.ends.total()

    def settled(self) -> int:
        """Rows and dead letters so far."""
        [(count,)] = self.ask(
            "SELECT (SELECT count(*) FROM {s}.requests) + (SELECT count(*) FROM {s}.dead_letters)"
        )
        return int(count)

    def compare(self) -> list[str]:
        """What is not as it has to be."""
        return wrong(Group(*row) for row in self.ask(COMPARE))

    def some_ids(self, count: int) -> dict[str, str]:
        """Ids of messages that are no dead letters, with their ends."""
        statement = "SELECT id, ending FROM {s}.sent WHERE ending <> %s ORDER BY random() LIMIT %s"
        return dict(self.ask(statement, (LETTER, count)))

    def counted(self) -> Counter[str]:
        """The counters that the consumer keeps, by end."""
        counts: Counter[str] = Counter()
        for state, code, n in self.ask(
            "SELECT state, code, sum(n)::bigint FROM {s}.counters GROUP BY 1, 2"
        ):
            counts[LETTER if state == "dead_letter" else f"{state}/{code}"] += n
        # Each try of an unknown type waits anew, and in the end it is given up.
        counts[UNKNOWN] = min(counts[UNKNOWN], self.ends[UNKNOWN])
        del counts[GIVEN_UP]
        return counts

    def ask(self, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with self._connect() as connection:
            connection.execute("SET work_mem = '128MB'")
            return connection.execute(self._sql(statement), values).fetchall()

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._database, application_name="flood")

    def _sql(self, statement: str) -> sql.Composed:
        return sql.SQL(statement).format(s=sql.Identifier(self._schema), shown=sql.Literal(SHOWN))
