"""The chaos suite's checks of statuses: each sees what is wrong, and lets pass what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.chaos.real.books import FORGOTTEN
from tests.chaos.real.checks import CHECKS
from tests.chaos.real.facts import Facts, Row, Status
from tests.chaos.real.faults import Struck
from tests.chaos.real.right_facts import right
from tests.chaos.real.traffic import Item, Kind

STAYS, AGREES = "a final status stays", "statuses agree with the journal"


def hear(facts: Facts, name: str, state: str, run: int = 1) -> None:
    rank = {"failed": 4, "dead": 8, "cancelled": 8}.get(state, 9)
    status = {"v": f"{run:05d}{rank}", "state": state, "code": "x"}
    facts.heard.take(f"{name} {json.dumps(status)}".encode(), 100)


def row_is(facts: Facts, state: str, run: int = 1) -> None:
    facts.rows["b"] = facts.rows["b"]._replace(state=state, run=run)


def only_status(facts: Facts, status: Status) -> None:
    """Of `b`, beside its row; nobody was told anything else."""
    facts.statuses["b"] = status
    del facts.ledger.ends["b"], facts.heard.final["b"]


def computed(facts: Facts) -> None:
    """`b` is of a type whose results have no row."""
    facts.ledger.items["b"] = Item("b", Kind.REQUEST, "pure", b"k", b"{}", [], 2)


@pytest.mark.parametrize("state", ["rejected", "superseded", "dead", "cancelled"])
def test_a_final_status_that_becomes_another_one_is_seen(state: str) -> None:
    facts = right()
    hear(facts, "b", "done")
    hear(facts, "b", "failed", 2)  # settled, of a copy
    assert CHECKS[STAYS](facts) == []
    hear(facts, "b", state, 2)
    hear(facts, "b", state, 2)
    assert len(CHECKS[STAYS](facts)) == 1


def test_what_was_dead_may_be_done_where_an_operator_retried_it_in_a_later_run() -> None:
    facts = right()
    del facts.heard.final["b"]
    hear(facts, "b", "dead", 1)
    hear(facts, "b", "done", 2)
    assert len(CHECKS[STAYS](facts)) == 1
    facts.retried.add("b")
    assert CHECKS[STAYS](facts) == []
    hear(facts, "b", "rejected", 3)
    assert len(CHECKS[STAYS](facts)) == 1


def test_what_was_dead_may_be_done_in_no_other_case_but_those_that_are_documented() -> None:
    facts = right()
    hear(facts, "b", "dead", 2)
    assert len(CHECKS[STAYS](facts)) == 1
    computed(facts)
    assert CHECKS[STAYS](facts) == []
    facts = right()
    hear(facts, "b", "dead", 2)
    facts.struck.append(Struck(FORGOTTEN, 1.0, 2.0, "3 rows"))
    assert CHECKS[STAYS](facts) == []


@pytest.mark.parametrize(
    "status, row",
    [
        (Status("dead", "worker_died", 2), ("done", 2)),
        (Status("cancelled", "cancelled", 1), ("done", 1)),
        (Status("failed", "timeout", 1), ("done", 1)),
        (Status("failed", "timeout", 2), ("done", 1)),
        (Status("in_doubt", "timeout", 3), ("done", 2)),
        (Status("superseded", "superseded", 1), ("done", 1)),
        (Status("done", "ok", 1), ("failed", 2)),
    ],
)
def test_a_status_that_the_row_contradicts_is_seen(status: Status, row: tuple[str, int]) -> None:
    facts = right()
    only_status(facts, status)
    row_is(facts, *row)
    assert len(CHECKS[AGREES](facts)) == 1


@pytest.mark.parametrize(
    "status, row",
    [
        (Status("dead", "worker_died", 2), ("done", 3)),  # an operator retried it
        (Status("failed", "timeout", 1), ("done", 2)),  # it was sent again
        (Status("failed", "shutdown", 9, has_row=False), ("done", 1)),  # a copy was refused
        (Status("in_doubt", "timeout", 2), ("done", 2)),  # it was settled
        (Status("waiting", "retry", 2), ("done", 2)),  # its end was not told
    ],
)
def test_an_older_status_may_stand(status: Status, row: tuple[str, int]) -> None:
    facts = right()
    only_status(facts, status)
    row_is(facts, *row)
    assert CHECKS[AGREES](facts) == []


@pytest.mark.parametrize(
    "state", ["waiting", "dead", "cancelled", "in_doubt", "failed", "done", "rejected"]
)
def test_a_status_without_its_row_is_seen(state: str) -> None:
    facts = right()
    only_status(facts, Status(state, "x", 1))
    del facts.rows["b"]
    assert len(CHECKS[AGREES](facts)) == 1
    facts.statuses["b"] = Status("failed", "database_unavailable", 1, has_row=False)
    assert CHECKS[AGREES](facts) == []


def test_what_is_computed_needs_a_row_only_while_it_is_dead() -> None:
    facts = right()
    computed(facts)
    only_status(facts, Status("done", "ok", 1))
    facts.rows["b"] = Row("b", "pure", "dead", "worker_died", 0, 0, 2, 2)
    assert CHECKS[AGREES](facts) == []  # a copy killed its worker twice
    del facts.rows["b"]
    assert CHECKS[AGREES](facts) == []
    facts.statuses["b"] = Status("dead", "worker_died", 2)
    assert len(CHECKS[AGREES](facts)) == 1


def told_a_producer(facts: Facts) -> None:
    facts.ledger.ends["b"] = ("rejected", "no_funds")


def told_a_witness(facts: Facts) -> None:
    hear(facts, "b", "rejected", 2)


@pytest.mark.parametrize("spoil", [told_a_producer, told_a_witness])
def test_what_was_told_has_to_agree_as_what_stands(spoil: Callable[[Facts], None]) -> None:
    facts = right()
    spoil(facts)
    assert len(CHECKS[AGREES](facts)) == 1
