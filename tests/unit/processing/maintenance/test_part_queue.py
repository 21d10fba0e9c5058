"""Parts over which the connection is lost: behind the others, after a rest, in halves."""

from __future__ import annotations

from typing import Any

from feedback.journal.halving import LOSSES, LOSSES_TOGETHER
from processing.maintenance.part_queue import PartQueue, after_loss
from processing.maintenance.unstarted import UnstartedRecords
from tests.support.maintenance import record


def part_of(*numbers: int, **more: Any) -> UnstartedRecords:
    part = UnstartedRecords(1, "parked", [record(n) for n in numbers], [], [], [])
    return part._replace(**more)


def numbers_of(parts: list[UnstartedRecords]) -> list[list[int]]:
    return [[one[2] for one in part.records] for part in parts]


def test_the_first_loss_is_anybodys_and_the_next_ones_are_rested_after_longer_and_longer() -> None:
    part, rests = part_of(1), []
    for _ in range(LOSSES - 1):
        (part,), rest = after_loss(part)
        rests.append(rest)
    assert rests == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]


def test_what_breaks_the_connection_is_found_by_halves_and_given_up_alone() -> None:
    """And nothing else is: number 5 is what breaks it."""
    waiting, parked, tries = [part_of(*range(9))], [], 0
    while waiting:
        part = waiting.pop(0)
        if 5 not in numbers_of([part])[0]:
            parked += numbers_of([part])[0]
            continue
        tries += 1
        waiting += after_loss(part).again
    assert sorted(parked) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert tries <= 4 * LOSSES_TOGETHER + LOSSES


def test_halves_keep_what_belongs_to_their_records() -> None:
    part = part_of(1, 2, 3, lost=[(1, 1), (0, 0), (2, 0)], losses=LOSSES_TOGETHER - 1)
    first, second = after_loss(part).again
    assert (numbers_of([first, second]), first.lost, second.lost) == (
        [[1], [2, 3]], [(1, 1)], [(0, 0), (2, 0)],
    )  # fmt: skip
    assert (first.losses, second.losses, first.number) == (0, 0, part.number)


def test_what_may_have_been_parked_for_its_limits_is_never_given_up() -> None:
    kept = part_of(1, lost=[(0, 0)], limited=True, losses=LOSSES + 50)
    assert after_loss(kept) == ([kept._replace(losses=LOSSES + 51)], 30.0)
    assert after_loss(kept._replace(limited=False)).again == []
    assert after_loss(part_of(1, limited=True, losses=LOSSES)).again == []


def test_what_rests_keeps_nobody_waiting() -> None:
    queue, poison, other = PartQueue(), part_of(1), part_of(2)
    queue.add([poison], 5.0)
    assert (bool(queue), queue.pause(1.0)) == (False, 4.0)
    queue.add([other])
    assert queue.pause(1.0) == 0.0
    assert (queue.next(), queue.next()) == (other, None)
    queue.wake(4.9)
    assert not queue
    queue.wake(5.0)
    queue.put_back([other])
    assert [queue.next(), queue.next(), queue.next()] == [other, poison, None]
    assert queue.pause(9.0) is None
    queue.add([poison], 99.0)
    queue.wake()
    assert queue.next() == poison


def test_those_that_are_put_aside_are_taken_by_what_they_are() -> None:
    queue, one, same = PartQueue(), part_of(1), part_of(1)
    queue.add([one, part_of(2), same])
    assert queue.those(lambda part: part.records[0][2] == 1) == [one, same]
    queue.take([one])
    assert numbers_of([queue.next(), queue.next()]) == [[2], [1]]  # type: ignore[list-item]
