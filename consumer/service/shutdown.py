"""The phases of a shutdown, by the clock and by signals. Pure.

    RUNNING --signal--> DRAINING --90 % of the grace--> REFUSING, TERMINATING --100 %--> KILLING

A further signal moves straight to the next phase. The gap between SIGTERM and SIGKILL to workers is
10 % of the grace, however the shutdown came to TERMINATING.
"""

from __future__ import annotations

from enum import IntEnum

DRAIN_SHARE = 0.9
GAP_SHARE = 0.1


class Phase(IntEnum):
    """How far a shutdown has come."""

    RUNNING = 0
    DRAINING = 1
    """Nothing new is taken; what is in hand runs."""
    REFUSING = 2
    """What has not started is answered instead of run."""
    TERMINATING = 3
    """Workers get SIGTERM: handlers are asked to give up."""
    KILLING = 4
    """Workers get SIGKILL."""


class Shutdown:
    """When each phase begins."""

    def __init__(self, grace: float) -> None:
        self._gap = grace * GAP_SHARE
        self._drain = grace * DRAIN_SHARE
        self._begins: dict[Phase, float] = {}

    def signal(self, now: float) -> Phase:
        """A signal came: the next phase begins now. Returns it."""
        reached = Phase(min(self.phase(now) + 1, Phase.KILLING))
        begins = self._begins
        begins[reached] = min(begins.get(reached, now), now)
        if reached is Phase.DRAINING:
            self._no_later(Phase.REFUSING, now + self._drain)
            self._no_later(Phase.TERMINATING, now + self._drain)
        elif reached is Phase.REFUSING:
            self._no_later(Phase.TERMINATING, now + self._gap)
        if reached is not Phase.KILLING:
            self._no_later(Phase.KILLING, begins[Phase.TERMINATING] + self._gap)
        return reached

    def phase(self, now: float) -> Phase:
        """The phase at this time."""
        return max((p for p, begin in self._begins.items() if begin <= now), default=Phase.RUNNING)

    @property
    def end(self) -> float | None:
        """When KILLING begins: nothing is waited for beyond that. None while running."""
        return self._begins.get(Phase.KILLING)

    def _no_later(self, phase: Phase, time: float) -> None:
        self._begins[phase] = min(self._begins.get(phase, time), time)
