"""Claims that leave out keys of which enough is in hand, on real PostgreSQL."""

from __future__ import annotations

import pytest

from feedback.journal import claims
from tests.support.claiming import ids, take
from tests.support.waiting_rows import WaitingRows


def test_rows_of_a_key_in_hand_are_passed_over(rows: WaitingRows) -> None:
    for n in range(5):
        rows.add(f"hot-{n}", key=b"hot", due_in=-50.0 + n)
    rows.add("cold", key=b"cold", due_in=-2.0)
    rows.add("no key", due_in=-3.0)
    rows.add("another type", key=b"hot", type="another", due_in=-60.0)
    assert ids(take(rows, held_keys=[b"hot", b"\x00odd\xff"])) == ["no key", "cold"]
    assert ids(take(rows, 3, order=2)) == ["another type", "hot-0", "hot-1"]
    assert ids(take(rows, order=3, held_keys=[b"cold"])) == ["hot-2", "hot-3", "hot-4"]


def test_no_more_is_read_than_some_of_a_type(
    rows: WaitingRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim must not take as long as a backlog is."""
    monkeypatch.setattr(claims, "LOOKED_THROUGH", 5)
    for n in range(8):
        rows.add(f"hot-{n}", key=b"hot", due_in=-50.0 + n)
    rows.add("among them", key=b"cold", due_in=-47.5)
    rows.add("behind", "behind, too", key=b"cold", due_in=-2.0)
    rows.add("other", type="other", due_in=-1.0)
    assert ids(take(rows, held_keys=[b"hot"])) == ["among them", "other"]
    assert ids(take(rows, 5, order=2)) == [f"hot-{n}" for n in range(5)]
    assert ids(take(rows, order=3, held_keys=[b"hot"])) == ["behind", "behind, too"]
    assert ids(take(rows, order=4)) == [f"hot-{n}" for n in range(5, 8)]
