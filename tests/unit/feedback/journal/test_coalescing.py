from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.journal.coalescing import Arrival, Started, Waiter, judge

NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("stock.count", "sku-1")


def arrival(
    id: str, second: int = 0, key: tuple[str, str] = KEY, window: float = 10, cap: float = 25
) -> Arrival:
    return Arrival(id, key, NOW + timedelta(seconds=second), window, cap)


def waiter(id: str, second: int = 0, since: float = 0) -> Waiter:
    start = NOW - timedelta(seconds=since)
    return Waiter(id, *KEY, NOW + timedelta(seconds=second), start, 1, 1, None, False, None)


def test_the_newest_waits_and_the_others_are_superseded() -> None:
    verdict = judge([arrival("b", 2), arrival("a", 1), arrival("x", 0, ("t", "y"))], [], {}, NOW)
    assert set(verdict.due) == {"b", "x"}
    assert verdict.superseded == {"a": "b"}
    assert verdict.ousted == []


def test_a_newer_one_ousts_what_waits_and_an_older_one_does_not() -> None:
    old = waiter("old", 1)
    verdict = judge([arrival("new", 2)], [old], {}, NOW)
    assert (verdict.ousted, set(verdict.due)) == ([(old, "new")], {"new"})
    verdict = judge([arrival("late", 0)], [old], {}, NOW)
    assert (verdict.ousted, verdict.due, verdict.superseded) == ([], {}, {"late": "old"})


@pytest.mark.parametrize("coming", [["b", "c"], ["c", "b"]])
def test_of_equal_times_the_greater_id_wins(coming: list[str]) -> None:
    arrivals = [arrival(name) for name in coming]
    verdict = judge(arrivals, [waiter("a")], {}, NOW)
    assert set(verdict.due) == {"c"}
    assert verdict.superseded == {"b": "c"}
    assert [loser.id for loser, _ in verdict.ousted] == ["a"]
    verdict = judge(arrivals, [waiter("d")], {}, NOW)
    assert (verdict.due, verdict.superseded) == ({}, {"b": "d", "c": "d"})
    verdict = judge(arrivals, [], {KEY: Started("d", NOW)}, NOW)
    assert (verdict.due, verdict.superseded) == ({}, {"b": "d", "c": "d"})


def test_what_is_older_than_a_started_one_has_lost() -> None:
    started = {KEY: Started("s", NOW + timedelta(seconds=5))}
    verdict = judge([arrival("late", 4)], [], started, NOW)
    assert verdict.superseded == {"late": "s"}
    verdict = judge([arrival("next", 6)], [], started, NOW)
    assert set(verdict.due) == {"next"}
    again = judge([arrival("s", 5)], [], started, NOW)
    assert set(again.due) == {"s"}, "the started one itself may wait for its next attempt"


def test_the_window_restarts_up_to_its_cap() -> None:
    due, since = judge([arrival("a")], [], {}, NOW).due["a"]
    assert (due, since) == (NOW + timedelta(seconds=10), NOW)
    due, since = judge([arrival("b")], [waiter("a", since=9)], {}, NOW).due["b"]
    assert (due, since) == (NOW + timedelta(seconds=10), NOW - timedelta(seconds=9))
    due, _ = judge([arrival("c")], [waiter("b", since=20)], {}, NOW).due["c"]
    assert due == NOW + timedelta(seconds=5)
    due, _ = judge([arrival("d")], [waiter("c", since=99)], {}, NOW).due["d"]
    assert due == NOW, "never in the past"


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=5), max_size=6))
def test_one_waits_for_each_reference_and_it_is_the_newest_that_ever_came(
    chunks: list[list[tuple[int, int]]],
) -> None:
    """A model that keeps but one thing: the newest so far of each reference."""
    newest: dict[int, tuple[int, str]] = {}
    rows: dict[int, Waiter] = {}
    losers: dict[str, str] = {}
    number = 0
    for chunk in chunks:
        arrivals = []
        for reference, second in chunk:
            number += 1
            name = f"r{number}"
            arrivals.append(arrival(name, second, ("t", str(reference))))
            newest[reference] = max(newest.get(reference, (second, name)), (second, name))
        verdict = judge(arrivals, rows.values(), {}, NOW)
        losers |= verdict.superseded | {w.id: by for w, by in verdict.ousted}
        for one in arrivals:
            assert (one.id in verdict.due) != (one.id in verdict.superseded)
            if one.id in verdict.due:
                reference = int(one.key[1])
                rows[reference] = Waiter(
                    one.id, *one.key, one.produced_at, NOW, 1, 1, None, False, None
                )
    assert {reference: row.id for reference, row in rows.items()} == {
        reference: name for reference, (_, name) in newest.items()
    }
    assert not losers.keys() & {row.id for row in rows.values()}
    assert len(losers) + len(rows) == number


REQUESTS = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 2), max_size=7)


def survivor(chunks: list[list[Arrival]], begins: set[int] | None = None) -> str | None:
    """Who is last to wait or start; of the chunks in `begins` the one that waits then starts."""
    waiting: Waiter | None = None
    started: dict[tuple[str, str], Started] = {}
    for number, chunk in enumerate(chunks):
        verdict = judge(chunk, [] if waiting is None else [waiting], started, NOW)
        for one in chunk:
            if one.id in verdict.due:
                waiting = Waiter(one.id, *KEY, one.produced_at, NOW, 1, 1, None, False, None)
        if waiting is not None and number in (begins or ()):
            started[KEY], waiting = Started(waiting.id, waiting.produced_at), None
    last = started.get(KEY)
    if waiting is not None:
        return waiting.id
    return None if last is None else last.id


@given(st.data(), REQUESTS)
def test_the_last_one_is_the_same_in_every_order_of_arrival(
    data: st.DataObject, requests: dict[str, int]
) -> None:
    arrivals = [arrival(name, second) for name, second in requests.items()]
    shuffled = data.draw(st.permutations(arrivals))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(shuffled)))))
    bounds = [0, *cuts, len(shuffled)]
    chunks = [shuffled[a:b] for a, b in itertools.pairwise(bounds)]
    begins = data.draw(st.sets(st.integers(0, len(chunks))))
    expected = survivor([arrivals])
    assert survivor(chunks) == survivor(chunks, begins) == expected


@given(REQUESTS)
def test_what_is_newer_is_a_total_order(requests: dict[str, int]) -> None:
    """Of two one wins, always; and who beats one that beats a third beats the third."""
    arrivals = [arrival(name, second) for name, second in requests.items()]

    def beats(a: Arrival, b: Arrival) -> bool:
        return survivor([[b], [a]]) == a.id

    for a, b in itertools.permutations(arrivals, 2):
        assert beats(a, b) != beats(b, a)
        assert beats(a, b) == (survivor([[a], [b]]) == a.id) == (survivor([[a, b]]) == a.id)
    for a, b, c in itertools.permutations(arrivals, 3):
        assert not (beats(a, b) and beats(b, c)) or beats(a, c)
