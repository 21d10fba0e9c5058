"""Who is charged for what had to be done again."""

from __future__ import annotations

from processing.worker.lost_tries import LostTries


def test_each_is_charged_with_the_tries_that_it_was_in() -> None:
    now = [100.0]
    tries = LostTries(lambda: now[0])
    for took, indices in ((8.0, [0, 1, 2]), (1.0, [0]), (4.0, [1, 2]), (64.0, [3])):
        now[0] += 1000.0  # what goes well
        tries.begin()
        now[0] += took
        tries.lost(indices)
    now[0] += 1000.0
    assert tries.charged_to([0]) == [9.0], "what others were in with it was its doing"
    assert tries.charged_to([2, 0]) == [8.0, 5.0], "and is shared where both come back"
    assert tries.charged_to([4]) == [0.0]
    assert tries.charged_to([]) == []
