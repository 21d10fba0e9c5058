"""Which partition a key goes to, and for how long rows of one that takes nothing wait."""

from __future__ import annotations

import pytest

from feedback.partitions import (
    FIRST_PAUSE,
    LONGEST_HOLD,
    LONGEST_PAUSE,
    Leading,
    StuckPartitions,
    partition_of,
)

WHOLE = dict.fromkeys(range(3), Leading.WHOLE)
SHORT = dict.fromkeys(range(3), Leading.SHORT)


@pytest.mark.parametrize(
    "key, hashed",
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_keys_go_where_javas_clients_send_them(key: str, hashed: int) -> None:
    """The hashes are those of Kafka's own tests."""
    assert partition_of(key.encode(), 1 << 31) == hashed & 0x7FFFFFFF


def keys_of(partition: int, number: int = 3) -> list[bytes]:
    made = [b"k%d" % n for n in range(100)]
    return [key for key in made if partition_of(key, number) == partition]


def test_one_row_asks_and_the_others_wait() -> None:
    stuck = StuckPartitions()
    other, mine = keys_of(0), keys_of(2)
    assert not stuck.waits(mine[0], 0.0)
    stuck.learn(3, {other[0]: 0, mine[0]: 2})
    assert stuck.took_nothing([2], 0.0) == [2]
    assert all(stuck.waits(key, 1.0) for key in mine)
    assert not any(stuck.waits(key, 1.0) for key in other)
    assert (stuck.of(mine[0]), stuck.pause(2, 1.0)) == (2, FIRST_PAUSE - 1)
    assert stuck.due(FIRST_PAUSE) == {2}
    assert [stuck.waits(key, FIRST_PAUSE) for key in mine[:3]] == [False, True, True]
    assert stuck.took_nothing([2], FIRST_PAUSE) == [], "no news"
    assert stuck.pause(2, FIRST_PAUSE) == 2 * FIRST_PAUSE
    for _ in range(9):
        stuck.took_nothing([2], 0.0)
    assert stuck.pause(2, 0.0) == LONGEST_PAUSE
    assert stuck.took([0, 2]) == [2]
    assert not stuck.waits(mine[0], 0.0)


@pytest.mark.parametrize("leading", [*Leading])
def test_that_nothing_was_confirmed_says_nothing_of_what_was_not_tried(leading: Leading) -> None:
    late = {keys_of(2)[0]: 2}
    for all_of_them in (WHOLE, SHORT):
        leaders = all_of_them | {2: leading}
        stuck = StuckPartitions()
        assert stuck.explain({}, late, lambda of=leaders: of, 0.0) == [2]
        assert stuck.waits(keys_of(2)[0], 1.0)


def test_all_are_away_where_nobody_answers_or_none_is_left_to_be_tried() -> None:
    first, second, third = ({keys_of(n)[0]: n} for n in range(3))
    nobody = StuckPartitions()
    assert nobody.explain({}, first, dict, 0.0) is None
    assert nobody.explain({}, {b"k": -1}, lambda: WHOLE, 0.0) is None
    assert nobody.explain({}, {**first, **second, **third}, lambda: WHOLE, 0.0) is None
    headless = dict.fromkeys(range(3), Leading.NONE)
    assert nobody.explain({}, first, lambda: headless | {0: Leading.SHORT}, 0.0) is None
    assert not nobody
    stuck = StuckPartitions()
    assert stuck.explain({}, first, lambda: WHOLE, 0.0) == [0]
    assert stuck.explain({}, {**first, **second}, lambda: WHOLE, 1.0) == [1]
    assert stuck.explain({}, third, lambda: WHOLE, 2.0) is None
    assert stuck.explain({}, first, lambda: WHOLE, 3.0) == [], "of the last one nothing is known"
    stuck.took([1])
    assert stuck.explain({}, third, lambda: WHOLE, 4.0) == [2]


def test_what_does_not_ask_waits_about_as_long_as_its_partition_took_nothing() -> None:
    stuck = StuckPartitions(lambda: 1.0)
    half = StuckPartitions(lambda: 0.0)
    seen, late = {keys_of(0)[0]: 0}, {keys_of(2)[0]: 2}
    for one in (stuck, half):
        one.explain(seen, late, lambda: WHOLE | {2: Leading.NONE}, 10.0)
        one.took_nothing([2], 15.0)
    assert [stuck.hold(2, 10.0 + lasted) for lasted in (0, 60, 90, 5000)] == [
        LONGEST_PAUSE, 60.0, 90.0, LONGEST_HOLD,
    ]  # fmt: skip
    assert half.hold(2, 100.0) == 45.0
    reached_by_others = StuckPartitions(lambda: 1.0)
    reached_by_others.explain(seen, late, lambda: WHOLE, 10.0)
    assert reached_by_others.hold(2, 5000.0) == LONGEST_PAUSE
    too_few = StuckPartitions(lambda: 1.0)
    too_few.explain(seen, late, lambda: WHOLE | {2: Leading.SHORT}, 10.0)
    assert too_few.hold(2, 5000.0) == LONGEST_HOLD
    assert stuck.freed() == []
    stuck.took([0, 2])
    assert (stuck.freed(), stuck.freed()) == ([2], [])
    stuck.took_nothing([2], 20.0)
    stuck.took([2])
    stuck.took_nothing([2], 21.0)
    assert stuck.freed() == [], "it takes nothing again"
    stuck.learn(3, {keys_of(0)[0]: 1})
    assert stuck.freed() == [2]


def test_with_another_partitioner_no_key_waits_for_a_partition() -> None:
    stuck = StuckPartitions()
    stuck.learn(3, {keys_of(0)[0]: 0, keys_of(2)[0]: 1})
    assert stuck.took_nothing([1], 0.0) == []
    assert not any(stuck.waits(b"k%d" % n, 0.0) for n in range(100))
    assert stuck.of(b"k") is None


def test_a_partition_that_leads_again_and_that_nobody_needs_is_forgotten() -> None:
    stuck = StuckPartitions()
    stuck.learn(3, {keys_of(0)[0]: 0, keys_of(2)[0]: 2})
    stuck.took_nothing([1, 2], 0.0)
    leaders = WHOLE | {2: Leading.NONE}
    asked: list[float] = []

    def look(now: float) -> None:
        def ask() -> dict[int, Leading]:
            asked.append(now)
            return leaders

        stuck.look(ask, now)

    look(FIRST_PAUSE)
    look(FIRST_PAUSE + 1)
    assert asked == [FIRST_PAUSE], "2 waits again, and of 1 it is known"
    leaders[2] = Leading.WHOLE
    look(15.0)
    assert stuck.has(1)
    assert not stuck.waits(keys_of(2)[0], 20.0)
    stuck.took_nothing([2], 20.0)
    look(FIRST_PAUSE + LONGEST_PAUSE)
    assert (stuck.has(1), stuck.has(2)) == (False, True), "2 was tried"
    for now in range(100, 400):
        look(float(now))
    assert not stuck
    assert len(asked) == 3
