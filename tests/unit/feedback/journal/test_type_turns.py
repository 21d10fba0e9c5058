"""Whose turn it is, of types that have rows due."""

from __future__ import annotations

from feedback.journal.type_turns import MOST_TYPES, TypeTurns


def test_who_had_its_turn_stands_behind_who_has_not() -> None:
    turns = TypeTurns()
    assert turns.in_line(["b", "a", "c"]) == ["b", "a", "c"]
    turns.had({"b": 2, "a": 1})
    assert turns.in_line(["a", "b", "c"]) == ["c", "a", "b"]
    assert turns.in_line(["new", "b"]) == ["b", "new"]


def test_types_that_anybody_makes_up_do_not_fill_the_memory() -> None:
    turns = TypeTurns()
    turns.in_line(["mine", "other"])
    turns.had({"other": 1})
    for n in range(3 * MOST_TYPES):
        turns.in_line(["mine", "other", f"made.up.{n}"])
        assert len(turns._line) <= MOST_TYPES
    assert turns.in_line(["other", "mine"]) == ["mine", "other"]
