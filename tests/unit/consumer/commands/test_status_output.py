"""A status as `oncepool status` and `send --wait` give it with --json."""

from __future__ import annotations

from datetime import UTC, datetime

from consumer.commands.status_output import as_object
from feedback.contract.states import State
from feedback.status.status import Status

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_it_says_where_no_journal_has_the_request() -> None:
    plain = Status("a", "t", State.FAILED, "too_late", 1, 1, AT)
    assert "journaled" not in as_object(plain)
    without = Status("a", "t", State.FAILED, "too_late", 1, 1, AT, journaled=False)
    assert as_object(without)["journaled"] is False
