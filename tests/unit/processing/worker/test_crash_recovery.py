from __future__ import annotations

import pytest

from processing.worker.crash_recovery import lost


@pytest.mark.parametrize(
    "verdict, state, reason",
    [
        ("timeout", "failed", "it took longer than its timeout"),
        ("worker_died", "dead", "its worker died while it ran"),
        ("shutdown", "waiting", "the consumer stopped while it ran"),
    ],
)
def test_a_run_without_an_end_of_its_own_says_why(verdict: str, state: str, reason: str) -> None:
    outcome = lost(verdict)
    assert (outcome.state, outcome.reason) == (state, reason)
