"""The chaos suite's books: what has no trace and no known cause is unexplained."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from tests.chaos.real.books import FORGOT, FORGOTTEN, REFUSED, UNHEARD, UNKNOWN, balance
from tests.chaos.real.checks import CHECKS
from tests.chaos.real.facts import Facts, unfinished
from tests.chaos.real.faults import Struck
from tests.chaos.real.producer import Copy
from tests.chaos.real.right_facts import right
from tests.chaos.real.traffic import Item, Kind


def letter_missing(facts: Facts) -> None:
    facts.letters.clear()


def first_copy_without_a_trace(facts: Facts) -> None:
    facts.ledger.items["c"] = Item("c", Kind.REQUEST, "move", b"k", b"{}", [], 3)
    facts.ledger.copies.append(Copy("c", Kind.REQUEST, 0, 0, 0, 0.0))


def copy_without_a_trace(facts: Facts) -> None:
    facts.ledger.copies.append(Copy("a", Kind.REQUEST, 1, 0, 0, 0.0))


@pytest.mark.parametrize(
    "spoil", [letter_missing, first_copy_without_a_trace, copy_without_a_trace]
)
def test_a_message_without_a_trace_is_unexplained_unless_its_taker_was_killed(
    spoil: Callable[[Facts], None],
) -> None:
    facts = right()
    facts.how["me"] = "alive"
    spoil(facts)
    assert len(balance(facts).unexplained) == 1
    facts.how["me"] = "killed"
    books = balance(facts)
    assert books.unexplained == []
    assert len(CHECKS["kills and stops lose nothing"](facts)) == 1
    assert (books.lost_later + books.lost + books.lost_bad)["main process killed"] == 1


def test_a_copy_that_was_read_again_needs_no_other_trace_where_its_id_has_a_row() -> None:
    facts = right()
    facts.how["me"] = "alive"
    copy_without_a_trace(facts)
    facts.read_again.append((0, 0, 4))
    assert balance(facts).answered_again == 1
    assert CHECKS["every copy is accounted for"](facts) == []


def test_a_copy_that_failed_as_it_may_have_run_is_one_run_of_its_row() -> None:
    """A later copy ran, and has the row: of the first one its number is left."""
    facts = right()
    facts.how["me"] = "alive"
    copy_without_a_trace(facts)
    facts.ledger.items["a"] = Item("a", Kind.REQUEST, "once", b"k", b"{}", [], 1)
    assert len(balance(facts).unexplained) == 1
    facts.rows["a"] = facts.rows["a"]._replace(run=2)
    books = balance(facts)
    assert (books.ended, books.unexplained) == (1, [])


def away(facts: Facts) -> None:
    """A resend of what is done, and the first copy of a request, while the database is away."""
    facts.how["me"] = "alive"
    first_copy_without_a_trace(facts)
    copy_without_a_trace(facts)
    copy_without_a_trace(facts)
    for copy in facts.ledger.copies[-3:]:
        copy.at = 101.0
    facts.struck.append(Struck("database_unreachable", 100.0, 102.0, "5 connections"))


def test_a_copy_is_refused_only_where_somebody_was_told_so_once_for_each() -> None:
    facts = right()
    away(facts)
    assert len(balance(facts).unexplained) == 3
    facts.heard.take(b'a {"v":"000019","state":"failed","code":"database_unavailable"}')
    facts.heard.take(b'a {"v":"000019","state":"done","code":"ok"}\nb broken')
    facts.ledger.refusals.append((101.5, "c", "failed/database_unavailable"))
    books = balance(facts)
    assert len(books.unexplained) == 1
    assert (books.lost, books.lost_later) == ({REFUSED: 1}, {REFUSED: 1, UNKNOWN: 1})
    facts.heard.take(b'a {"v":"000019","state":"failed","code":"database_unavailable"}')
    assert balance(facts).unexplained == []


@pytest.mark.parametrize("kind", ["nobody listens", "maintenance_killed"])
def test_what_is_refused_when_nobody_can_hear_of_it_is_a_cause_of_its_own(kind: str) -> None:
    facts = right()
    away(facts)
    facts.heard.deaf.append((50.0, 60.0))
    facts.struck.append(Struck("maintenance_killed", 50.0, 60.0, "pid 7"))
    assert len(balance(facts).unexplained) == 3
    if kind == "nobody listens":
        facts.heard.deaf.append((101.0, 102.0))
    else:
        facts.struck.append(Struck(kind, 101.0, 102.0, "pid 7"))
    books = balance(facts)
    assert (books.unexplained, books.lost) == ([], {UNHEARD: 1})


def test_what_the_database_has_forgotten_is_a_cause_only_near_its_promotion() -> None:
    facts = right()
    away(facts)
    facts.struck[-1] = Struck(FORGOTTEN, 100.0, 102.0, "3 answered requests had no row")
    facts.ledger.copies[-1].at = 10.0
    assert balance(facts).lost_later == {FORGOT: 1, UNKNOWN: 1}
    facts.how["me"] = "killed"
    books = balance(facts)
    assert (books.lost, books.lost_later) == ({FORGOT: 1}, {FORGOT: 1, "main process killed": 1})


def not_taken_request(facts: Facts) -> None:
    facts.ledger.items["c"] = Item("c", Kind.REQUEST, "move", b"k", b"{}", [], 3)
    facts.ledger.copies.append(Copy("c", Kind.REQUEST, 0, 0, 4, 0.0))


def not_taken_copy(facts: Facts) -> None:
    facts.ledger.copies.append(Copy("a", Kind.REQUEST, 1, 0, 4, 0.0))


def not_taken_malformed(facts: Facts) -> None:
    facts.ledger.copies.append(Copy("odd2", Kind.MALFORMED, 0, 0, 4, 0.0))


@pytest.mark.parametrize("spoil", [not_taken_request, not_taken_copy, not_taken_malformed])
def test_what_nobody_has_committed_is_unexplained(spoil: Callable[[Facts], None]) -> None:
    facts = right()
    facts.how["me"] = "killed"
    spoil(facts)
    assert len(CHECKS["every copy is accounted for"](facts)) == 1


def test_a_doubt_that_was_told_is_no_refusal() -> None:
    facts = right()
    facts.how["me"] = "alive"
    copy_without_a_trace(facts)
    facts.ledger.refusals.append((1.0, "a", "in_doubt/handler_error"))
    facts.ledger.refusals.append((1.0, "a", "failed/handler_error"))
    assert len(balance(facts).unexplained) == 1
    facts.ledger.refusals.append((1.0, "a", "failed/shutdown"))
    assert balance(facts).unexplained == []


def told_a_producer(facts: Facts) -> None:
    facts.ledger.refusals.append((1.0, "a", "in_doubt/handler_error"))


def told_a_witness(facts: Facts) -> None:
    facts.heard.take(b'a {"v":"000015","state":"in_doubt","code":"timeout"}', 0, 1.0)


def answer_lost(facts: Facts) -> None:
    facts.lost_answers.add("a")


@pytest.mark.parametrize("doubt", [told_a_producer, told_a_witness, answer_lost])
def test_one_copy_may_have_settled_a_doubt_where_one_is_known(
    doubt: Callable[[Facts], None],
) -> None:
    facts = right()
    facts.how["me"] = "alive"
    copy_without_a_trace(facts)
    facts.ledger.items["a"] = Item("a", Kind.REQUEST, "charge", b"k", b"{}", [], 1)
    assert len(balance(facts).unexplained) == 1
    doubt(facts)
    assert (balance(facts).settled, balance(facts).unexplained) == (1, [])
    copy_without_a_trace(facts)
    assert (balance(facts).settled, len(balance(facts).unexplained)) == (1, 1)
    facts.ledger.items["a"] = Item("a", Kind.REQUEST, "blind", b"k", b"{}", [], 1)
    assert len(balance(facts).unexplained) == 2


def test_what_is_not_committed_or_not_finished_in_the_end_is_unread() -> None:
    told = [
        TopicPartition("x", 0, 4, "1;me-1;4"),
        TopicPartition("x", 1, OFFSET_INVALID),  # without any message
        TopicPartition("x", 2, 4, "1;me-1;3"),  # not finished
        TopicPartition("x", 3, 4, "1;me-1;4"),  # not committed
        TopicPartition("x", 4, OFFSET_INVALID),
    ]
    found = unfinished(told, {0: 4, 1: 0, 2: 4, 3: 5, 4: 2})
    assert [line.partition(":")[0] for line in found] == [f"partition {n}" for n in (2, 3, 4)]
