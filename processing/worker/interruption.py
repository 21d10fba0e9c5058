"""How runs end that something else put an end to: a deadline, an operator, a death. Pure."""

from __future__ import annotations

from feedback.contract.lost_starts import lost_reason
from feedback.contract.states import (
    CANCELLED,
    INSTANCE_DIED,
    PARKED,
    SHUTDOWN,
    WORKER_DIED,
    State,
)
from processing.handlers.options import Effect
from processing.handlers.outcomes import Outcome

_STATES = {WORKER_DIED: State.DEAD, INSTANCE_DIED: State.DEAD, CANCELLED: State.CANCELLED}


def lost(verdict: str, reason: str | None = None, *, begun: bool = True) -> Outcome:
    """How a run ends whose worker had to be given up; `reason` in place of what is said else.

    `begun`: its handler may have been entered.
    """
    reason = reason or lost_reason(verdict)
    if verdict == SHUTDOWN:
        return Outcome(State.WAITING, PARKED, reason=reason, begun=begun)
    state = _STATES.get(verdict, State.FAILED)
    return Outcome(state, verdict, reason=reason)


def interrupted(
    code: str, effect: Effect, reason: str | None = None, error: str | None = None
) -> Outcome:
    """How a run ends that was told to, and did; `code`: `timeout`, `shutdown` or `cancelled`.

    `reason`: who wanted it, in place of what is said else; `error`: what it raised then.
    """
    if effect == "external":
        return Outcome(State.IN_DOUBT, code, reason=reason or lost_reason(code), error=error)
    return cancelled(reason or "", error) if code == CANCELLED else lost(code, reason)


def cancelled(reason: str, error: str | None = None) -> Outcome:
    """How a run ends that an operator cancelled and that left nothing behind."""
    return Outcome(State.CANCELLED, CANCELLED, reason=reason, error=error)
