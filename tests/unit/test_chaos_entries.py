"""The chaos suite's checks of handlers that were entered again."""

from __future__ import annotations

from tests.chaos.real import entry_checks
from tests.chaos.real.checks import CHECKS
from tests.chaos.real.entry_checks import entered_after_done, entered_again
from tests.chaos.real.facts import Entry, Facts
from tests.chaos.real.right_facts import MAIN, OTHER, right
from tests.chaos.real.traffic import Item, Kind

ONCE = "calls outside are entered once"
AFTER = "what is done is not entered again"


def calls(facts: Facts, type: str) -> None:
    facts.ledger.items["a"] = Item("a", Kind.REQUEST, type, b"k", b"{}", [], 1)


def test_a_call_of_which_nobody_can_ask_is_entered_once_by_whoever() -> None:
    facts = right()
    calls(facts, "blind")
    assert CHECKS[ONCE](facts) == []
    facts.entries.append(Entry("a", 0, 7, OTHER, 12))  # a resend
    assert len(CHECKS[ONCE](facts)) == 1
    calls(facts, "charge")
    assert CHECKS[ONCE](facts) == []


def test_an_entry_after_its_instance_told_the_end_is_seen() -> None:
    facts = right()  # its ends were heard when the log had 90 bytes
    facts.entries.append(Entry("a", 0, 1, MAIN, 11, at=60))
    assert CHECKS[AFTER](facts) == []
    facts.entries.append(Entry("a", 0, 1, MAIN, 11, at=90))
    assert len(CHECKS[AFTER](facts)) == 1


def test_an_entry_beside_another_that_ended_it_is_only_counted() -> None:
    facts = right()
    facts.entries += [Entry("a", 0, 1, OTHER, 21, at=120), Entry("b", 0, 9, MAIN, 11, at=150)]
    assert CHECKS[AFTER](facts) == []
    assert len(entered_after_done(facts)) == 2


def test_each_entry_again_has_one_cause() -> None:
    facts = right()
    facts.failed_runs["a"] = 1
    facts.entries = [
        Entry("a", 0, 1, OTHER, 21),
        Entry("a", 0, 1, OTHER, 21),  # after its failure
        Entry("a", 0, 1, MAIN, 11),  # after its instance was killed
        Entry("a", 0, 1, MAIN, 11),  # rolled back
        Entry("a", 0, 1, MAIN, 12),  # its worker is not seen again
        Entry("b", 0, 2, MAIN, 12),
        Entry("b", 0, 2, MAIN, 13),
        Entry("a", 0, 1, MAIN, 12),  # ended as well
        Entry("b", 0, 2, MAIN, 12),  # the one before is at work below
        Entry("c", 0, 3, MAIN, 13),
        Entry("c", 0, 3, 30, 31),  # stopped
        Entry("c", 0, 3, 40, 41),  # lives
    ]
    assert entered_again(facts) == {
        entry_checks.FAILED: 1,
        entry_checks.KILLED: 1,
        entry_checks.SAME_WORKER: 2,
        entry_checks.WORKER_ENDED: 1,
        entry_checks.OTHER_WORKER: 2,
        entry_checks.STOPPED: 1,
        entry_checks.ELSEWHERE: 1,
    }
