"""Requests that cannot be committed together: who fails, and what that costs the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import Error, errors

from feedback.contract.envelope import read
from feedback.contract.record import Record
from processing.logs import get_logger
from processing.worker.bisection import Bisection
from processing.worker.chunk_run import ChunkRun
from processing.worker.outages import Outages
from processing.worker.session import Session
from processing.worker.task import Task
from processing.worker.transaction import Transaction
from tests.support.executor import chunk_run

CHECK, DATA = errors.CheckViolation, errors.DataException
Refused = Mapping[int, type[Error]]
"""By index: what a transaction in which that one is run fails with."""


class Journal:
    """Session, outages and transaction in one, of a database that refuses some requests."""

    def __init__(self) -> None:
        self.refused: Refused = {}
        self.transactions = 0
        """In which requests were run, and not only written down."""
        self.entered: Counter[int] = Counter()
        self.ended: list[tuple[int, str]] = []

    def run(self, tasks: Sequence[Task], chunk: ChunkRun, _apart: list[Task]) -> list[Task]:
        fresh = [task.index for task in tasks if task.index not in chunk.decided]
        self.transactions += bool(fresh)
        self.entered.update(fresh)
        for index in fresh:
            if index in self.refused:
                raise self.refused[index](f"of {index}")
        for task in tasks:
            end = "done" if task.outcome is None else str(task.outcome.error)
            self.ended.append((task.index, end.partition(" (")[0]))
        chunk.settled.update(task.index for task in tasks)
        return []

    def survive(self, _error: Error, *, journals: bool) -> bool:
        return not journals

    def committed(self) -> None: ...

    def rollback(self) -> None: ...


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def bisection(journal: Journal) -> Bisection:
    return bisection_of(journal)


def bisection_of(journal: Journal) -> Bisection:
    return Bisection(
        session=cast("Session", journal), transaction=cast("Transaction", journal),
        outages=cast("Outages", journal), schema="s", patience=1.0, publish=lambda _: None,
        log=get_logger("test"),
    )  # fmt: skip


def run(bisection: Bisection, journal: Journal, count: int, refused: Refused) -> None:
    """Runs a chunk; each must have its own end, as if it had been alone, and in their order."""
    journal.refused = refused
    journal.transactions = 0
    journal.entered.clear()
    journal.ended.clear()
    records: list[Record] = [
        ("t", 0, n, 0, None, b"{}", [("ce_id", b"r%d" % n), ("ce_type", b"pay")], "pay", None)
        for n in range(count)
    ]
    bisection.run([Task(n, r, read(r)) for n, r in enumerate(records)], chunk_run(records), [])
    assert journal.ended == [
        (n, f"{refused[n].__name__}: of {n}" if n in refused else "done") for n in range(count)
    ]


def test_what_all_fail_with_is_not_looked_for_in_halves(
    bisection: Bisection, journal: Journal
) -> None:
    run(bisection, journal, 500, dict.fromkeys(range(500), CHECK))
    assert journal.entered.total() <= 3 * 500 + 20, "in halves each is entered ten times"
    assert journal.transactions <= 500 + 20, "in halves there are 999"
    run(bisection, journal, 500, dict.fromkeys(range(500), CHECK))
    assert set(journal.entered.values()) == {2}, "together and alone, as it is known by then"


@pytest.mark.parametrize("refused", [(0,), (311,), (499,), (3, 400), (90, 91), (249, 250)])
def test_one_at_fault_in_each_half_fails_alone(
    bisection: Bisection, journal: Journal, refused: tuple[int, ...]
) -> None:
    run(bisection, journal, 500, dict.fromkeys(refused, CHECK))
    levels = math.ceil(math.log2(500))
    assert journal.transactions <= 1 + len(refused) * (2 * levels + 1)
    assert journal.entered.total() <= 500 * (2 + 2 * len(refused))


def test_it_is_over_with_the_first_that_ends_well(bisection: Bisection, journal: Journal) -> None:
    run(bisection, journal, 500, dict.fromkeys(range(100), CHECK))
    assert journal.transactions <= 100 + 25
    run(bisection, journal, 500, {})
    assert journal.transactions == 1
    run(bisection, journal, 512, {5: CHECK})
    assert journal.transactions == 1 + 2 * 9


def test_failures_of_different_kinds_have_nothing_in_common(
    bisection: Bisection, journal: Journal
) -> None:
    run(bisection, journal, 64, {n: (CHECK, DATA)[n % 2] for n in range(64)})
    assert journal.transactions == 127
    run(bisection, journal, 64, dict.fromkeys(range(64), CHECK))
    run(bisection, journal, 64, {5: DATA})
    assert journal.transactions == 1 + 2 * 6, "what was common to others is no sign of it"


kinds = st.sampled_from([CHECK, CHECK, CHECK, DATA, None])


@given(st.lists(st.lists(kinds, min_size=1, max_size=40), min_size=1, max_size=4))
def test_each_ends_as_it_would_alone(chunks: list[list[type[Error] | None]]) -> None:
    journal = Journal()
    bisection = bisection_of(journal)
    for chunk in chunks:
        run(bisection, journal, len(chunk), {n: kind for n, kind in enumerate(chunk) if kind})
        levels = math.ceil(math.log2(len(chunk)))
        assert max(journal.entered.values()) <= levels + 1, "never more often than in halves"
