"""What becomes of a run that failed: another attempt, or the end. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from feedback.contract.headers import LONGEST_DELAY
from feedback.contract.states import State
from processing.handlers.outcomes import Outcome
from processing.handlers.retry_policy import RetryPolicy

UNKNOWN_TYPE_POLICY = RetryPolicy(attempts=10, base=5, factor=2, cap=300)
"""For a type that this version does not know: a newer one may be rolling out."""


def decide(
    outcome: Outcome, policy: RetryPolicy, used: int, now: datetime, draw: Callable[[], float]
) -> tuple[Outcome, int]:
    """What becomes of a run that ended so, after `used` attempts, and how many are used then.

    A failure becomes `waiting` until its next attempt, or `dead` after the last one; it stays
    `failed` where there never was to be a second. Every other end stays as it is.
    """
    if outcome.state != State.FAILED:
        return outcome, used + 1
    retry = outcome.retry
    if retry is None or retry.counts:
        used += 1
        if used >= policy.attempts or not _worth_it(outcome, policy):
            return (outcome if policy.attempts == 1 else replace(outcome, state=State.DEAD)), used
    due = retry.due(now) if retry is not None else None
    if due is None:
        due = now + timedelta(seconds=policy.pause(max(1, used), draw))
    due = min(max(due, now), now + LONGEST_DELAY)
    return replace(outcome, state=State.WAITING, due=due), used


def _worth_it(outcome: Outcome, policy: RetryPolicy) -> bool:
    # Time-outs and the like are no exception of the handler's: they count as worth it.
    return (
        outcome.retry is not None or outcome.cause is None or isinstance(outcome.cause, policy.on)
    )
