from __future__ import annotations

from benchmarks.rebalance_books import (
    AT_COMMIT,
    ENDS,
    IN_KILLED,
    LATER,
    REFUSED,
    RUN,
    UNEXPLAINED,
    BookedRow,
    Books,
    Owners,
    balance,
)
from benchmarks.rebalance_load import Asked, Copy
from tests.support.committed_offsets import Landed

OWNERS = Owners(
    [
        Landed(0, 10, "1;host-a-1;"),
        Landed(0, 20, "1;host-b-1;"),
        Landed(1, 5, "1;host-a-2;"),
    ]
)
"""Partition 0: a took offsets 0 to 9, b took 10 to 19. Partition 1: a took 0 to 4."""


def asked(*copies: tuple[int, int], refused: int = 0, answer: str | None = "done") -> Asked:
    name = f"{copies[0][0]}-{copies[0][1]}"
    return Asked(name, 0.0, 0.0, [Copy(*copy) for copy in copies], answer, refused)


def ran(one: Asked, which: int = 0, resends: int = 0) -> dict[str, BookedRow]:
    return {one.id: BookedRow(one.copies[which], done=True, resends=resends, finished=1.0)}


def books(
    requests: list[Asked],
    journal: dict[str, BookedRow],
    effects: dict[str, int] | None = None,
    killed: frozenset[str] = frozenset(),
    given_up: dict[str, int] | None = None,
) -> Books:
    done = dict.fromkeys(journal, 1) if effects is None else effects
    return balance(requests, journal, done, OWNERS, killed, given_up or {})


def firsts(**counts: int) -> dict[str, int]:
    names = {"run": RUN, "later": LATER, "refused": REFUSED, "killed": IN_KILLED,
             "commit": AT_COMMIT, "unexplained": UNEXPLAINED}  # fmt: skip
    return dict.fromkeys(ENDS, 0) | {names[name]: count for name, count in counts.items()}


def test_a_message_belongs_to_the_instance_whose_commit_passed_it() -> None:
    assert OWNERS.of(Copy(0, 0)) == OWNERS.of(Copy(0, 9)) == "host-a"
    assert OWNERS.of(Copy(0, 10)) == OWNERS.of(Copy(0, 19)) == "host-b"
    assert OWNERS.of(Copy(0, 20)) is None
    assert OWNERS.of(Copy(7, 0)) is None


def test_an_offset_that_was_committed_again_stays_with_the_first_instance() -> None:
    owners = Owners([Landed(0, 10, "1;a-1;"), Landed(0, 10, "1;b-1;"), Landed(0, 12, "1;b-2;")])
    assert (owners.of(Copy(0, 9)), owners.of(Copy(0, 10))) == ("a", "b")


def test_a_late_answer_and_its_resend_are_no_loss() -> None:
    one = asked((0, 1), (0, 12))
    found = books([one], ran(one, resends=1))
    assert (found.first, found.messages, found.from_journal) == (firsts(run=1), 2, 1)
    assert found.balance


def test_a_resend_that_ran_sooner_on_the_next_owner_is_no_loss() -> None:
    one = asked((0, 1), (0, 12))
    found = books([one], ran(one, which=1, resends=1))
    assert (found.first, found.lost) == (firsts(later=1), 0)


def test_a_loss_is_explained_by_any_message_that_was_not_run() -> None:
    # Offsets 1 (a) and 12 (b): one was answered, the other lost; 15 ran.
    one = asked((0, 1), (0, 12), (0, 15))
    found = books([one], ran(one, which=2, resends=1), killed=frozenset({"host-b"}))
    assert (found.first, found.lost) == (firsts(killed=1), 1)


def test_a_first_message_that_a_killed_instance_took_along() -> None:
    one = asked((0, 1), (0, 12))
    found = books([one], ran(one, which=1), killed=frozenset({"host-a"}))
    assert found.first == firsts(killed=1)
    assert found.balance


def test_an_instance_explains_no_more_losses_than_it_gave_up() -> None:
    requests = [asked((0, n), (0, 12 + n)) for n in range(3)]
    journal: dict[str, BookedRow] = {}
    for one in requests:
        journal |= ran(one, which=1)
    found = books(requests, journal, given_up={"host-a": 2, "host-b": 9})
    assert found.first == firsts(commit=2, unexplained=1)
    assert (found.given_up, found.balance) == (11, False)


def test_a_refused_first_message_is_not_a_lost_one() -> None:
    one = asked((0, 1), (0, 12), refused=1)
    assert books([one], ran(one, which=1)).first == firsts(refused=1)


def test_a_loss_that_nobody_committed_is_unexplained() -> None:
    one = asked((0, 25), answer=None)
    found = books([one], {}, killed=frozenset({"host-a", "host-b", ""}), given_up={"": 1})
    assert (found.first, found.unanswered) == (firsts(unexplained=1), 1)
    assert not found.balance


def test_two_effects_or_none_do_not_balance() -> None:
    one, other = asked((0, 1)), asked((0, 2))
    journal = ran(one) | ran(other)
    twice = books([one, other], journal, {one.id: 2, other.id: 1})
    assert (twice.twice, twice.unequal, twice.balance) == (1, 0, False)
    without = books([one, other], journal, {one.id: 1})
    assert (without.twice, without.unequal, without.balance) == (0, 1, False)
