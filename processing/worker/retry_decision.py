"""From how a run ended to what becomes of its request: the end, or another attempt. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from feedback.contract.headers import LONGEST_DELAY
from feedback.contract.states import State
from feedback.contract.times import later, moment
from feedback.journal.coalescing import Arrival, CoalescingDecision
from processing.handlers.options import WINDOWS
from processing.handlers.outcomes import Outcome
from processing.handlers.retry_policy import RetryPolicy
from processing.worker.task import Task

ASKED_POLICY = RetryPolicy(attempts=10)
"""For a handler that raises Retry, of a type that has no `retries=`."""
UNKNOWN_TYPE_POLICY = RetryPolicy(attempts=10, base=5, factor=2, cap=300)
"""For a type that this version does not know: a newer one may be rolling out."""


def conclude(task: Task, now: datetime, draw: Callable[[], float]) -> None:
    """Sets `final` and `used`. What a task says of its run (`outcome`) stays as it is.

    What is to wait is due from `now` on, which is by the clock that says later what is due.
    """
    outcome = task.outcome
    if outcome is None:
        raise AssertionError(f"request {task.envelope.id} has no outcome yet")
    task.used = task.used_before
    if outcome.state is State.WAITING:
        # Nothing was tried: it waits for its time, or was given back.
        task.final = outcome if outcome.due is not None else replace(outcome, due=now)
    elif task.handler is None:
        # Nothing of its type was tried: the tries are the queue's own, and its handler's are kept.
        task.final, _ = decide(outcome, UNKNOWN_TYPE_POLICY, task.tries_before, now, draw)
    else:
        task.final, task.used = decide(outcome, task.handler.retries, task.used_before, now, draw)
    asked = task.envelope.options.not_before
    if task.hold_open and asked is not None and task.final.due is not None:
        # Nothing of the type's is needed to know that it is not to be run before.
        task.final = replace(task.final, due=max(task.final.due, moment(asked)))


def decide(
    outcome: Outcome, policy: RetryPolicy, used: int, now: datetime, draw: Callable[[], float]
) -> tuple[Outcome, int]:
    """What becomes of a run that ended so, after `used` attempts, and how many are used then.

    A failure becomes `waiting` until its next attempt, or `dead` after the last one; it stays
    `failed` where there never was to be a second, and nobody asked for one with Retry. Every other
    end stays as it is.
    """
    if outcome.state != State.FAILED:
        return outcome, used + 1
    retry = outcome.retry
    if retry is not None and policy.attempts == 1:
        policy = ASKED_POLICY
    if retry is None or retry.counts:
        used += 1
        if used >= policy.attempts or not _worth_it(outcome, policy):
            return (outcome if policy.attempts == 1 else replace(outcome, state=State.DEAD)), used
    due = retry.due(now) if retry is not None else None
    if due is None:
        due = later(now, policy.pause(max(1, used), draw))
    due = min(max(due, now), now + LONGEST_DELAY)
    return replace(outcome, state=State.WAITING, due=due), used


def _worth_it(outcome: Outcome, policy: RetryPolicy) -> bool:
    # Time-outs and the like are no exception of the handler's: they count as worth it.
    cause = outcome.cause
    if outcome.retry is not None or cause is None:
        return True
    # sys.exit and its like are none of the exceptions that anybody lists: as any other failure.
    kind = type(cause) if isinstance(cause, Exception) else Exception
    return issubclass(kind, policy.on) or isinstance(cause, policy.on)


def arrivals(tasks: Sequence[Task]) -> list[Arrival]:
    """Those that are about to wait under a reference, in their order of arrival."""
    found = []
    for task in sorted(tasks, key=lambda t: t.index):
        if task.final is None or task.final.state is not State.WAITING or task.reference is None:
            continue
        window, cap = 0.0, 0.0
        if task.held and task.handler is not None:
            window = task.handler.window
            cap = task.handler.window_cap or window * WINDOWS
        key = (task.envelope.type, task.reference)
        known = None if task.stored is None else task.stored.created_at
        found.append(Arrival(task.envelope.id, key, task.produced_at, window, cap, known))
    return found


def follow(task: Task, verdict: CoalescingDecision) -> None:
    """Applies the verdict on its reference to a task that was about to wait."""
    name = task.envelope.id
    if name in verdict.superseded:
        winner = verdict.superseded[name]
        task.final = Outcome(State.SUPERSEDED, State.SUPERSEDED.value, superseded_by=winner)
    elif name in verdict.due and task.final is not None and task.final.due is not None:
        due, task.window_start = verdict.due[name]
        task.final = replace(task.final, due=max(due, task.final.due))
