from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.times import LATEST
from feedback.journal.coalescing import Arrival, Key, Started, Waiter, judge

NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("stock.count", "sku-1")


def arrival(
    id: str, second: int = 0, key: tuple[str, str] = KEY, window: float = 10, cap: float = 25,
    heard: float | None = None,
) -> Arrival:  # fmt: skip
    known = None if heard is None else NOW + timedelta(seconds=heard)
    return Arrival(id, key, NOW + timedelta(seconds=second), window, cap, known)


def started(id: str, second: int = 0, heard: float | None = None) -> dict[Key, Started]:
    known = None if heard is None else NOW + timedelta(seconds=heard)
    return {KEY: Started(id, NOW + timedelta(seconds=second), known)}


def waiter(id: str, second: int = 0, since: float = 0, heard: float = 0) -> Waiter:
    start = NOW - timedelta(seconds=since)
    made, known = NOW + timedelta(seconds=second), NOW + timedelta(seconds=heard)
    return Waiter(id, *KEY, made, known, start, 1, 1, None, False, None)


def test_the_newest_waits_and_the_others_are_superseded() -> None:
    verdict = judge([arrival("b", 2), arrival("a", 1), arrival("x", 0, ("t", "y"))], [], {}, NOW)
    assert set(verdict.due) == {"b", "x"}
    assert verdict.superseded == {"a": "b"}
    assert verdict.ousted == []


def test_a_window_beyond_the_calendar_ends_with_it() -> None:
    for window, cap in ((1e12, 1e13), (1e308, float("inf"))):
        endless = arrival("a", window=window, cap=cap)
        assert judge([endless], [waiter("w")], {}, NOW).due == {"a": (LATEST, NOW)}


def test_a_newer_one_ousts_what_waits_and_an_older_one_does_not() -> None:
    old = waiter("old", 1)
    verdict = judge([arrival("new", 2)], [old], {}, NOW)
    assert (verdict.ousted, set(verdict.due)) == ([(old, "new")], {"new"})
    verdict = judge([arrival("late", 0)], [old], {}, NOW)
    assert (verdict.ousted, verdict.due, verdict.superseded) == ([], {}, {"late": "old"})


def test_of_equal_times_the_later_arrival_wins() -> None:
    verdict = judge([arrival("a"), arrival("b")], [waiter("w")], {}, NOW)
    assert set(verdict.due) == {"b"}
    assert verdict.superseded == {"a": "b"}
    assert [loser.id for loser, _ in verdict.ousted] == ["w"]


def test_what_is_older_than_a_started_one_has_lost() -> None:
    begun = started("s", 5, heard=1)
    verdict = judge([arrival("late", 4)], [], begun, NOW)
    assert verdict.superseded == {"late": "s"}
    verdict = judge([arrival("next", 6)], [], begun, NOW)
    assert set(verdict.due) == {"next"}
    again = judge([arrival("s", 5, heard=1)], [], begun, NOW)
    assert set(again.due) == {"s"}, "the started one itself may wait for its next attempt"


def test_of_equal_times_one_that_is_tried_again_is_no_later_arrival() -> None:
    """Its row says since when it is known; so do those of the others."""
    second = waiter("second", heard=2)
    verdict = judge([arrival("first", heard=1)], [second], started("first", heard=1), NOW)
    assert (verdict.superseded, verdict.due, verdict.ousted) == ({"first": "second"}, {}, [])
    verdict = judge([arrival("second", heard=2)], [waiter("first", heard=1)], {}, NOW)
    assert [(loser.id, by) for loser, by in verdict.ousted] == [("first", "second")]
    begun = started("second", heard=2)
    verdict = judge([arrival("first", heard=1)], [], begun, NOW)
    assert verdict.superseded == {"first": "second"}
    assert set(judge([arrival("new")], [], begun, NOW).due) == {"new"}
    both = [arrival("second", heard=2), arrival("first", heard=1)]
    assert judge(both, [], {}, NOW).superseded == {"first": "second"}
    both = [arrival("new"), arrival("first", heard=1)]
    assert judge(both, [], {}, NOW).superseded == {"first": "new"}


def test_what_was_heard_of_at_once_goes_by_its_id_and_a_row_that_is_gone_is_the_oldest() -> None:
    verdict = judge([arrival("a", heard=1)], [waiter("b", heard=1)], {}, NOW)
    assert verdict.superseded == {"a": "b"}
    verdict = judge([arrival("b", heard=1)], [waiter("a", heard=1)], {}, NOW)
    assert [loser.id for loser, _ in verdict.ousted] == ["a"]
    assert set(judge([arrival("a", heard=1)], [], started("z"), NOW).due) == {"a"}


def test_the_window_restarts_up_to_its_cap() -> None:
    due, since = judge([arrival("a")], [], {}, NOW).due["a"]
    assert (due, since) == (NOW + timedelta(seconds=10), NOW)
    due, since = judge([arrival("b")], [waiter("a", since=9)], {}, NOW).due["b"]
    assert (due, since) == (NOW + timedelta(seconds=10), NOW - timedelta(seconds=9))
    due, _ = judge([arrival("c")], [waiter("b", since=20)], {}, NOW).due["c"]
    assert due == NOW + timedelta(seconds=5)
    due, _ = judge([arrival("d")], [waiter("c", since=99)], {}, NOW).due["d"]
    assert due == NOW, "never in the past"


def test_a_window_that_began_later_than_now_begins_now() -> None:
    """By another's clock, or as SQL by hand wrote it."""
    far = waiter("a")._replace(window_start=LATEST)
    due, since = judge([arrival("b", cap=7 * 86_400)], [far], {}, NOW).due["b"]
    assert (due, since) == (NOW + timedelta(seconds=10), NOW)


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
            if reference not in newest or newest[reference][0] <= second:
                newest[reference] = (second, name)
        verdict = judge(arrivals, rows.values(), {}, NOW)
        losers |= verdict.superseded | {w.id: by for w, by in verdict.ousted}
        for one in arrivals:
            assert (one.id in verdict.due) != (one.id in verdict.superseded)
            if one.id in verdict.due:
                reference = int(one.key[1])
                rows[reference] = Waiter(
                    one.id, *one.key, one.produced_at, NOW, NOW, 1, 1, None, False, None
                )
    assert {reference: row.id for reference, row in rows.items()} == {
        reference: name for reference, (_, name) in newest.items()
    }
    assert not losers.keys() & {row.id for row in rows.values()}
    assert len(losers) + len(rows) == number
