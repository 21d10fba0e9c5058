from __future__ import annotations

from pathlib import Path

from feedback.contract.state_machine import ALLOWED, table
from feedback.contract.states import FINAL, REOPENABLE, State

DOCS = Path(__file__).parents[4] / "docs" / "states.md"


def test_the_documentation_shows_the_moves_of_the_code() -> None:
    assert table() in DOCS.read_text("utf-8")


def test_final_states_stay_unless_an_operator_reopens_them() -> None:
    for start, end in ALLOWED:
        if start in FINAL - REOPENABLE:
            assert end is None, "only pruning removes it"
        if start in REOPENABLE:
            assert end in (State.WAITING, State.CANCELLED, None)


def test_every_state_of_a_row_can_be_reached_and_none_is_a_trap() -> None:
    rows = set(State) - {State.ACCEPTED}
    assert {end for _, end in ALLOWED} - {None} == rows
    assert {start for start, _ in ALLOWED} - {None} == rows
