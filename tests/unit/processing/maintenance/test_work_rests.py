"""Work that fails rests; no other work does."""

from __future__ import annotations

from processing.maintenance.work_rests import WorkRests, worth_a_line


def test_one_lost_connection_is_anybodys_and_the_second_in_a_row_has_it_rest() -> None:
    rests = WorkRests()
    assert (rests.lost("park", 0.0), rests.pause("park", 0.0)) == (1, 0.0)
    assert rests.lost("park", 0.0) == 2
    assert 0.0 < rests.pause("park", 0.0) <= 0.25
    assert rests.pause("renew", 0.0) == 0.0
    for _ in range(20):
        rests.lost("park", 10.0)
    assert 2.5 <= rests.pause("park", 10.0) <= 5.0
    rests.succeeded("park")
    assert rests.pause("park", 10.0) == 0.0
    assert (rests.lost("park", 10.0), rests.pause("park", 10.0)) == (1, 0.0)


def test_losses_of_long_ago_are_not_in_a_row() -> None:
    rests = WorkRests()
    rests.lost("hear", 0.0)
    assert rests.lost("hear", 3600.0) == 1
    assert rests.lost("hear", 3630.0) == 2


def test_what_fails_with_its_connection_rests_at_once() -> None:
    rests = WorkRests()
    rests.failed("sweep", 0.0)
    assert 0.5 <= rests.pause("sweep", 0.0) <= 1.0
    assert rests.pause("sweep", 2.0) == 0.0
    rests.lost("sweep", 2.0)
    rests.clear()
    assert (rests.pause("sweep", 0.0), rests.lost("sweep", 0.0)) == (0.0, 1)


def test_losses_are_told_when_it_begins_to_rest_and_now_and_then() -> None:
    assert [n for n in range(31) if worth_a_line(n)] == [2, 10, 20, 30]


def test_urgent_work_rests_for_a_second_at_most() -> None:
    rests = WorkRests(urgent={"renew"})
    for _ in range(20):
        rests.failed("renew", 0.0)
        rests.lost("renew", 0.0)
        rests.failed("claim", 0.0)
    assert 0.0 < rests.pause("renew", 0.0) <= 1.0
    assert rests.pause("claim", 0.0) >= 15.0
