"""The chaos suite's check that nothing runs before its commit is confirmed."""

from __future__ import annotations

from tests.chaos.real.checks import CHECKS
from tests.chaos.real.facts import Entry, Facts
from tests.chaos.real.right_facts import MAIN, OTHER, right
from tests.support.committed_offsets import Landed

FIRST = "confirmed first"


def ran(facts: Facts, main: int, clock: float) -> None:
    """When and by whom `a` at offset 1 was entered."""
    facts.entries[0] = Entry("a", 0, 1, main, 11, clock=clock)


def test_a_later_commit_above_it_does_not_excuse_what_ran_before_the_first_one() -> None:
    facts = right()
    ran(facts, MAIN, 5.0)  # at once
    assert CHECKS[FIRST](facts) == []
    ran(facts, MAIN, 4.9)
    assert len(CHECKS[FIRST](facts)) == 1
    facts.commits.insert(0, Landed(0, 1, "1;me-1;", 1001.0))  # below it
    assert len(CHECKS[FIRST](facts)) == 1
    facts.commits.insert(1, Landed(0, 2, "1;me-1;", 1002.0))
    assert CHECKS[FIRST](facts) == []


def test_what_another_one_ran_was_handed_over_by_one_that_was_told_to_stop() -> None:
    facts = right()  # the one that committed was told so at 8
    facts.how["other"] = ""
    ran(facts, OTHER, 8.5)
    assert CHECKS[FIRST](facts) == []
    ran(facts, OTHER, 7.5)
    assert len(CHECKS[FIRST](facts)) == 1
    facts.how["me"] = ""
    ran(facts, OTHER, 8.5)
    assert len(CHECKS[FIRST](facts)) == 1
    facts.commits.append(Landed(0, 2, "1;other-1;", 1008.0))
    assert CHECKS[FIRST](facts) == []


def test_only_the_first_entry_of_a_message_tells_who_took_it() -> None:
    facts = right()
    facts.how["other"] = ""
    facts.entries.append(Entry("a", 0, 1, OTHER, 21, clock=1.0))
    assert CHECKS[FIRST](facts) == []
    facts.entries.insert(0, facts.entries.pop())
    assert len(CHECKS[FIRST](facts)) == 1
    facts.ledger.items["a"].type = "recount"  # a row that waited
    assert CHECKS[FIRST](facts) == []


def test_orders_are_judged_as_well() -> None:
    facts = right()
    facts.entries.append(Entry("o1", 0, 4, MAIN, 11, clock=6.0))
    assert len(CHECKS[FIRST](facts)) == 1
    facts.commits.append(Landed(0, 6, "1;me-2;", 1005.5))
    assert CHECKS[FIRST](facts) == []


def test_of_facts_without_times_the_offsets_alone_are_judged() -> None:
    facts = right()
    facts.lead, facts.stopped_at = 0.0, {}
    facts.commits = [Landed(0, 4, "1;me-1;")]
    ran(facts, MAIN, 0.0)
    facts.entries[1] = facts.entries[1]._replace(clock=0.0)
    assert CHECKS[FIRST](facts) == []
    facts.commits = [Landed(0, 1, "1;me-1;")]
    assert len(CHECKS[FIRST](facts)) == 2
