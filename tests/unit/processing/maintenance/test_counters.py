from __future__ import annotations

import pytest

from feedback.contract.headers import MAX_NAME
from processing.maintenance import counters as counters_module
from processing.maintenance.counters import OTHER, Counters

KEY = ("payment.create", "done", "ok")


def test_counts_add_up_per_minute() -> None:
    counters = Counters()
    counters.add({KEY: 2}, 61.0)
    counters.add({KEY: 3}, 119.9)
    counters.add({KEY: 4}, 120.0)

    assert counters.take() == {(60, *KEY): 5, (120, *KEY): 4}
    assert not counters


def test_what_could_not_be_written_is_added_to_what_came_since() -> None:
    counters = Counters()
    counters.add({KEY: 2}, 0.0)
    taken = counters.take()
    counters.add({KEY: 3}, 1.0)

    counters.restore(taken)

    assert counters.take() == {(0, *KEY): 5}


def test_made_up_types_share_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "MOST_NAMES", 2)
    counters = Counters()
    for n in range(5):
        counters.add({(f"type-{n}", "failed", "unknown_type"): 1}, 0.0)

    counts = counters.take()

    assert counts[0, OTHER, "failed", "unknown_type"] == 3
    assert sum(counts.values()) == 5


def test_a_long_outage_gives_up_counts_not_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "MOST_KEYS", 3)
    counters = Counters()
    for minute in range(5):
        counters.add({KEY: 1}, minute * 60.0)

    assert len(counters.take()) == 3
    assert counters.lost == 2


def test_any_text_is_counted_as_the_database_takes_it() -> None:
    counters = Counters()
    counters.add({("a\0b", "failed", "\ud800"): 1, ("x" * 9000, "failed", "ok"): 1}, 0.0)

    names = {(kind, code) for _, kind, _, code in counters.take()}

    assert names == {("a\ufffdb", "?"), ("x" * MAX_NAME, "ok")}
