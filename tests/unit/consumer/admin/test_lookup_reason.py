"""Why a request waits, which Redis tells and no row of the journal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from consumer.admin.lookup import newer
from feedback.contract.states import State
from feedback.status.status import Status

AT = datetime(2030, 5, 1, tzinfo=UTC)
TOLD = Status("a", "t", State.WAITING, "parked", 1, 1, AT, None, reason="the instance stopped")


@pytest.mark.parametrize("later", [-1, 0, 1])
def test_a_row_that_says_the_same_has_the_reason_that_redis_tells(later: int) -> None:
    stored = replace(TOLD, reason=None, at=AT + timedelta(seconds=later))
    assert newer(TOLD, stored) == replace(stored, reason=TOLD.reason)


@pytest.mark.parametrize(
    "other", [{"run": 2}, {"code": "retried"}, {"state": State.RUNNING}, {"reason": "its own"}]
)
def test_a_row_that_says_something_else_keeps_what_it_says(other: dict[str, object]) -> None:
    stored = replace(TOLD, **({"reason": None, "at": AT} | other))  # type: ignore[arg-type]
    assert newer(TOLD, stored) == stored
