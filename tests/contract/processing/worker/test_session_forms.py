"""A database whose forms of values are not the usual ones: what is read and written is the same."""

from __future__ import annotations

from typing import Any

import pytest

from processing import Retry
from tests.support.queue import Queue

FORMS = [
    "array_nulls=off",
    "extra_float_digits=-15",
    "IntervalStyle=sql_standard",
    "bytea_output=escape",
    "standard_conforming_strings=off",
    "DateStyle=German",
    "xmloption=document",
    "TimeZone=Asia/Kathmandu",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_retry_is_due_when_it_says_and_ends(
    monkeypatch: pytest.MonkeyPatch, queue: Queue, answers: dict[str, Any], form: str
) -> None:
    monkeypatch.setenv("PGOPTIONS", f"-c {form}")
    answers["a"], answers["r"] = OSError("away"), Retry(after=50, counts=False)
    queue.run(queue.record("a", "picky", {"n": None}), queue.record("r", "pay", {}))
    queue.run(queue.record("c", "count", {"sku": "s"}), queue.record("d", "count", {"sku": "s"}))
    [(soon,)] = queue.query(
        "SELECT bool_and(due_at - created_at < interval '1 day')"
        f" FROM {queue.schema}.requests WHERE id = ANY(%s)",
        ["a", "r"],
    )
    assert soon
    del answers["a"], answers["r"]
    queue.again("a", "r", "d")
    assert {name: state for name, (state, _) in queue.rows().items()} == {
        "a": "done", "c": "superseded", "d": "done", "r": "done",
    }  # fmt: skip
    assert queue.effects() == ["a", "d", "r"]
    # The same ones once more: they are known by their fingerprints.
    queue.run(queue.record("a", "picky", {"n": None}), queue.record("r", "pay", {}))
    known = f"SELECT id, resends FROM {queue.schema}.requests WHERE id = ANY(%s) ORDER BY id"
    assert queue.query(known, ["a", "r"]) == [("a", 1), ("r", 1)]
    assert queue.letters() == []


def test_a_neighbour_that_changes_how_a_backslash_is_read_changes_no_row(
    queue: Queue, answers: dict[str, Any]
) -> None:
    answers["a"] = OSError("away")
    queue.run(queue.record("a", "picky", {"n": 1}))
    del answers["a"]
    change = "SET LOCAL standard_conforming_strings = off"
    queue.run(*queue.claimed("a"), queue.record("b", "says", {"sql": change}))
    queue.run(queue.record("a", "picky", {"n": 1}))
    known = f"SELECT state, resends FROM {queue.schema}.requests WHERE id = 'a'"
    assert (queue.query(known), queue.letters()) == ([("done", 1)], [])
