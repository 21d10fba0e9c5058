"""What became of every request of a run: from the journal, the effects and Kafka's own log.

Every message of a request is run, answered from the journal, refused, or lost. A lost one lies
below an offset that a member has committed: a killed one took it along, or one that lives has given
the batch up because the group did not seem to have its commit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from benchmarks.rebalance_load import Asked, Copy
from tests.support.committed_offsets import Landed

RUN = "run"
LATER = "answered, a resend ran sooner"
REFUSED = "refused"
IN_KILLED = "lost in a killed process"
AT_COMMIT = "lost at commit"
UNEXPLAINED = "lost, unexplained"
ENDS = (RUN, LATER, REFUSED, IN_KILLED, AT_COMMIT, UNEXPLAINED)


@dataclass(frozen=True, slots=True)
class BookedRow:
    """A request's row of the journal."""

    copy: Copy
    """Which message of it was run."""
    done: bool
    resends: int
    """Messages of it that were answered from the journal."""
    finished: float
    """Seconds since the epoch; 0 where it is not."""


@dataclass(frozen=True, slots=True)
class Books:
    """How the requests of a run ended."""

    requests: int
    messages: int
    """Requests and resends."""
    first: dict[str, int]
    """What became of their first messages: one count for each of ENDS."""
    from_journal: int
    """Messages that found their request done."""
    refused: int
    lost: int
    """Messages that nobody has run or answered."""
    done: int
    twice: int
    """Ids with more than one row in the table of effects."""
    unequal: int
    """Ids that the journal calls done without an effect, or the other way about."""
    unanswered: int
    """Ids without a settled status in the time that the producer waits in all."""
    given_up: int
    """Records that members gave up at commit. Most of these are read by the next owner."""

    @property
    def balance(self) -> bool:
        """Nothing ran twice, everything was answered, and every loss has its cause."""
        return not self.twice + self.unequal + self.unanswered + self.first[UNEXPLAINED]


class Owners:
    """Which instance's commit took each message."""

    def __init__(self, commits: Iterable[Landed]) -> None:
        self._ends: dict[int, list[int]] = {}
        self._instances: dict[int, list[str]] = {}
        for commit in commits:
            ends = self._ends.setdefault(commit.partition, [])
            if not ends or commit.offset > ends[-1]:
                ends.append(commit.offset)
                # version;instance-number;rest
                instance = commit.metadata.split(";")[1].rpartition("-")[0]
                self._instances.setdefault(commit.partition, []).append(instance)

    def of(self, copy: Copy) -> str | None:
        """The instance; None where nobody has committed it."""
        instances = self._instances.get(copy.partition, [])
        at = bisect_right(self._ends.get(copy.partition, []), copy.offset)
        return instances[at] if at < len(instances) else None


def read_journal(database: str, schema: str) -> dict[str, BookedRow]:
    """Every row, by id."""
    query = sql.SQL(
        "SELECT id, partition, kafka_offset, state = 'done', resends,"
        " coalesce(extract(epoch FROM finished_at), 0)::float8 FROM {}.requests"
    ).format(sql.Identifier(schema))
    with psycopg.connect(database) as connection:
        return {
            request: BookedRow(Copy(partition, offset), done, resends, finished)
            for request, partition, offset, done, resends, finished in connection.execute(query)
        }


def read_effects(database: str, schema: str) -> dict[str, int]:
    """How many rows each id has left."""
    query = sql.SQL("SELECT id, count(*) FROM {}.effects GROUP BY id")
    with psycopg.connect(database) as connection:
        return dict(connection.execute(query.format(sql.Identifier(schema))).fetchall())


def balance(
    asked: Sequence[Asked],
    journal: Mapping[str, BookedRow],
    effects: Mapping[str, int],
    owners: Owners,
    killed: frozenset[str],
    given_up: Mapping[str, int],
) -> Books:
    """Puts together what producer, journal, effects and Kafka say.

    `killed` are instances; `given_up` is how many records each of the others gave up at commit, so
    an instance explains no more losses than that.
    """
    left = Counter(given_up)
    first = dict.fromkeys(ENDS, 0)
    lost = 0
    for one in asked:
        row = journal.get(one.id)
        lost += _lost(one, row)
        first[_first_end(one, row, owners, killed, left)] += 1
    done = {request for request, row in journal.items() if row.done}
    return Books(
        requests=len(asked),
        messages=sum(len(one.copies) for one in asked),
        first=first,
        from_journal=sum(row.resends for row in journal.values()),
        refused=sum(one.refused for one in asked),
        lost=lost,
        done=len(done),
        twice=sum(count > 1 for count in effects.values()),
        unequal=len(done ^ effects.keys()),
        unanswered=sum(one.answer is None for one in asked),
        given_up=sum(given_up.values()),
    )


def _lost(one: Asked, row: BookedRow | None) -> int:
    return len(one.copies) - one.refused - (0 if row is None else 1 + row.resends)


def _first_end(
    one: Asked, row: BookedRow | None, owners: Owners, killed: frozenset[str], left: Counter[str]
) -> str:
    """Takes what it explains by records that were given up from `left`."""
    if row is not None and row.copy == one.copies[0]:
        return RUN
    if not _lost(one, row):
        # No message is missing: the first was answered from the journal, after a later one ran.
        return REFUSED if one.refused else LATER
    # Which of those that were not run is lost is not known: any that may be counts for the first.
    unrun = [copy for copy in one.copies if row is None or row.copy != copy]
    instances = [instance for copy in unrun if (instance := owners.of(copy)) is not None]
    if not killed.isdisjoint(instances):
        return IN_KILLED
    for instance in instances:
        if left[instance] > 0:
            left[instance] -= 1
            return AT_COMMIT
    return UNEXPLAINED
