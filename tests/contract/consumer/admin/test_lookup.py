"""Statuses of the journal, as commands and cancels look them up, on a real PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from consumer.admin import lookup
from consumer.admin.journal import JournalContended
from consumer.config.settings import Settings
from stack import Stack
from tests.support.journal import Journal


def test_a_look_ends_though_a_lock_is_not_given(
    stack: Stack, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database_url=stack.database, database_schema=journal.schema)
    journal.put("r1", "dead")
    monkeypatch.setattr(lookup, "JOURNAL_TIMEOUT", 0.2)
    lock = "LOCK TABLE {s}.requests IN ACCESS EXCLUSIVE MODE"
    with ThreadPoolExecutor(1) as pool, journal.holding(lock):
        look = pool.submit(lookup.look_up, settings, ["r1"])
        with pytest.raises(JournalContended, match="end transactions that stay open"):
            look.result(10)
    assert [one and one.state for one in lookup.look_up(settings, ["r1"])] == ["dead"]
