"""The chaos suite's check of single connections that are lost."""

from __future__ import annotations

import pytest

from tests.chaos.real.checks import CHECKS
from tests.chaos.real.connection_checks import lost_alone, lost_connections, none_was_judged
from tests.chaos.real.facts import Facts
from tests.chaos.real.faults import Struck
from tests.chaos.real.right_facts import right


def lost(facts: Facts, *others: str) -> None:
    """One is lost while these strike, and somebody is refused."""
    facts.struck.append(Struck("database_backend_ended_idle", 100.0, 100.1, "1 of them"))
    facts.struck += [Struck(kind, 91.0, 95.0, "seen") for kind in others]
    facts.ledger.refusals.append((100.5, "a", "failed/database_unavailable"))


@pytest.mark.parametrize("beside", ["worker_killed", "redis_paused", "database_commit_reply_lost"])
def test_one_is_judged_beside_faults_that_refuse_nobody(beside: str) -> None:
    facts = right()
    lost(facts, beside)
    assert len(CHECKS["one lost connection refuses nobody"](facts)) == 1


@pytest.mark.parametrize("beside", ["database_paused", "descriptors_exhausted"])
def test_nothing_is_said_of_one_that_is_lost_beside_an_outage(beside: str) -> None:
    facts = right()
    lost(facts, beside)
    assert CHECKS["one lost connection refuses nobody"](facts) == []
    assert (len(lost_connections(facts)), lost_alone(facts)) == (1, [])


def test_those_are_counted_that_took_effect() -> None:
    facts = right()
    lost(facts)
    facts.struck.append(Struck("database_backend_ended_idle", 200.0, 200.1, ""))
    assert (len(lost_connections(facts)), len(lost_alone(facts))) == (1, 1)


def test_a_long_run_in_which_none_was_judged_has_a_problem() -> None:
    assert none_was_judged(39, 0) == none_was_judged(400, 1) == []
    assert len(none_was_judged(40, 0)) == 1
