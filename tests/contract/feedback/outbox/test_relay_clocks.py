"""The relay's clock is minutes from its database's, by which it counts silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from feedback.client.result import Result
from feedback.contract.states import State
from tests.support.asked import POLICY, Asked
from tests.support.outbox import Outbox

MINUTES = timedelta(minutes=7)
WAITS = 300.0
"""Seconds."""


@pytest.mark.parametrize("apart", [-MINUTES, MINUTES], ids=["behind", "ahead"])
def test_silence_counts_from_when_a_request_is_due(outbox_: Outbox, apart: timedelta) -> None:
    asked = Asked(outbox_, "a", "b")
    due = datetime.now(UTC) + timedelta(seconds=WAITS)
    for name in "ab":
        asked.status(name, State.WAITING, "retry", retry_at=due)
    asked.silence()
    with time_machine.travel(apart):
        asked.settle()
        # A record says less than the status, which counts again.
        said = Result("b", "t", State.FAILED, "handler_error", None, due - timedelta(hours=1))
        asked.settling.records(asked.connection, [said])
    for row in outbox_.rows("SELECT *, next_at - now() AS left FROM :schema.requests"):
        assert WAITS < row["left"].total_seconds() <= WAITS + POLICY.resend_after
