"""The rows of requests that others asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from feedback.contract.envelope import Envelope
from processing.handlers.request import FollowUp
from processing.worker.records import follow_up_row
from processing.worker.task import Task

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("seconds, own", [(None, False), (-60, True), (0, True), (1, True)])
def test_a_time_of_its_own_is_told_from_none_also_where_it_is_over(
    seconds: int | None, own: bool
) -> None:
    asks = Task(
        0,
        ("t", 0, 1, 0, None, b"{}", [], "asks", None),
        Envelope("a", "asks", b"{}", None, {}, 0.0, None, "t", 0, 1),
    )
    due = None if seconds is None else NOW + timedelta(seconds=seconds)
    row = follow_up_row(asks, FollowUp("f", "type", b"{}", b"f", due), NOW)
    assert row.asked_by == "a"
    assert row.not_before is not None
    assert (row.not_before > row.produced_at) == own
    assert row.not_before - NOW <= timedelta(seconds=max(seconds or 0, 0), microseconds=1)
